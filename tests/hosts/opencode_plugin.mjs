// Plays a list of calls to the plugin, with a client that stands for OpenCode's, and prints what came of them.
// Its argument is the plugin's file; on standard input {directory, calls: [[name, input, output]], sessions?, messages?}.
import { readFileSync } from "node:fs"
import { pathToFileURL } from "node:url"

const { default: plugin } = await import(pathToFileURL(process.argv[2]).href)
const play = JSON.parse(readFileSync(0, "utf8"))
const asked = []
const answer = (name, data) => async (request) => {
  asked.push([name, request])
  return { data: typeof data === "function" ? data(request) : data }
}
const client = {
  session: {
    get: answer("get", ({ path }) => play.sessions?.[path.id] ?? { id: path.id }),
    messages: answer("messages", () => play.messages ?? []),
    promptAsync: answer("promptAsync"),
  },
  app: { log: answer("log") },
  tui: { showToast: answer("toast") },
  _client: { patch: answer("patch") },
}
const hooks = await plugin.server({ client, directory: play.directory })
const second = Object.keys(await plugin.server({ client, directory: play.directory }))
const outputs = []
const started = Date.now()
for (const [name, input = {}, output = {}] of play.calls) {
  await hooks[name](input, output)
  outputs.push(name === "config" ? input : output)
}
const told = JSON.stringify({ second, outputs, asked, took: Date.now() - started })
process.stdout.write(told, () => process.exit(0))
