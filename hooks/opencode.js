// Loom in OpenCode (plugin API of 1.18). It carries events to `loomctl hook --host opencode WORD`, each on standard
// input, and does with the answer what it says: {text} for the assistant, {line} for the user, {goes_on} at the end of
// a turn, {output} in place of a tool's. What Loom says, and when, is decided there. No answer changes nothing.
import { spawn } from "node:child_process"
import { randomUUID } from "node:crypto"
import { readFileSync, readdirSync, realpathSync } from "node:fs"
import { delimiter, dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

const BUNDLE = dirname(dirname(realpathSync(fileURLToPath(import.meta.url))))
const LOOMCTL = join(BUNDLE, "bin", "loomctl")
// Seconds that a hook may take; what takes longer is ended, and the turn goes on without it.
const SECONDS = { "session-start": 10, stop: 60, "session-end": 2 }
const LARGEST = 16 << 20
// The words of a process that serves more than the one terminal which it was started in.
const SERVING = ["serve", "web", "acp", "run", "attach", "--port", "--hostname", "--mdns"]
const BLOCK = /```!\n([^]*?)\n```/g

function run(words, { input = "", cwd, env, seconds, all = false }) {
  return new Promise((resolve) => {
    const chunks = []
    let size = 0
    let child
    try {
      // A group of its own, so that what it started ends with it.
      const stdio = ["pipe", "pipe", all ? "pipe" : "ignore"]
      child = spawn(words[0], words.slice(1), { cwd, env, stdio, detached: true })
    } catch {
      resolve("")
      return
    }
    const end = () => {
      clearTimeout(timer)
      resolve(Buffer.concat(chunks).toString("utf8"))
    }
    const kill = () => {
      try {
        process.kill(-child.pid, "SIGKILL")
      } catch {}
      chunks.length = all ? chunks.length : 0 // half an answer is none
      end()
    }
    const timer = setTimeout(kill, seconds * 1000)
    const take = (chunk) => {
      size += chunk.length
      if (size > LARGEST) kill()
      else chunks.push(chunk)
    }
    child.stdout.on("data", take)
    child.stderr?.on("data", take)
    child.on("error", end)
    child.on("close", end)
    child.stdin.on("error", () => {})
    child.stdin.end(input)
  })
}

function commands() {
  const found = {}
  for (const name of readdirSync(join(BUNDLE, "commands"))) {
    if (!name.endsWith(".md")) continue
    const text = readFileSync(join(BUNDLE, "commands", name), "utf8")
    const [, head = "", template = ""] = /^---\n([^]*?)\n---\n([^]*)$/.exec(text) ?? []
    const description = /^description: (.*)$/m.exec(head)?.[1]
    if (template) found[`loom:${name.slice(0, -3)}`] = { template, description }
  }
  return found
}

// Texts that a message's assistant, or its user, wrote.
const written = (message) =>
  message.parts
    .filter((part) => part.type === "text" && !part.synthetic)
    .map((part) => part.text)
    .join("\n\n")
const isSummary = ({ info }) => info.role === "assistant" && info.summary === true && info.finish && !info.error
// A tool's metadata may hold its whole output again.
const isSmall = ([, value]) => typeof value !== "object" && String(value).length < 1000
const small = (held) => Object.fromEntries(Object.entries(held ?? {}).filter(isSmall))

// A part behind all others of its message: parts stand in the order of their ids.
function partFor(message, text, metadata) {
  const last = message.parts.map((part) => part.id).sort().at(-1) ?? "prt_"
  const { id, sessionID } = message.info
  return { id: `${last}L`, sessionID, messageID: id, type: "text", synthetic: true, text, metadata: { loom: metadata } }
}

// What fails here leaves the host's turn as it is, and is said in the host's log.
function complain(client, name, error) {
  const message = `Loom's plugin failed in ${name}: ${error?.stack ?? error}`
  try {
    client.app.log({ body: { service: "loom", level: "error", message } }).catch(() => {})
  } catch {}
}

function failingOpen(hooks, client) {
  const open = (name, hook) => async (...told) => {
    try {
      await hook(...told)
    } catch (error) {
      complain(client, name, error)
    }
  }
  return Object.fromEntries(Object.entries(hooks).map(([name, hook]) => [name, open(name, hook)]))
}

// Clients, one for each project that is open: a plugin found twice, in the user's folder and the project's, works once.
const served = (globalThis[Symbol.for("loom.opencode")] ??= new WeakSet())

async function server({ client, directory }) {
  if (served.has(client)) return {}
  served.add(client)
  const sessions = new Map() // by id: what is known of each in this process, or the promise of it
  let terminal = !process.argv.slice(1).some((word) => SERVING.includes(word.split("=")[0]))
  const calls = new Map() // tool calls that run, each with its session's id
  const latest = new Map() // by session: the newest message of its assistant
  const working = new Set() // what no hook of the host's waits for
  const brought = new Map() // commands of the bundle's that no one of the user's own replaces, each with its template
  let newest // the session that the terminal's user began last

  const asked = async (request) => {
    try {
      return (await request)?.data
    } catch {}
  }

  // What is known of a session. main: the one that its user talks to, itself unless it is a subagent's.
  const known = async (id) => {
    if (!sessions.has(id)) {
      const look = async () => {
        const info = await asked(client.session.get({ path: { id } }))
        const above = info?.parentID ? await known(info.parentID) : undefined
        const made = { id, main: above?.main ?? id, begun: false, turn: "" }
        sessions.set(id, made)
        return made
      }
      sessions.set(id, look())
    }
    return sessions.get(id)
  }

  const environment = (session) => ({
    ...process.env,
    PATH: [join(BUNDLE, "bin"), process.env.PATH].filter(Boolean).join(delimiter),
    PWD: directory,
    OPENCODE: "1",
    OPENCODE_PID: String(process.pid),
    ...(session ? { OPENCODE_SESSION_ID: session.main } : {}),
  })

  const hook = async (session, word, name, told) => {
    const agent = session.main === session.id ? {} : { agent_id: session.id }
    const event = { session_id: session.main, hook_event_name: name, cwd: directory, ...agent, ...told }
    const env = {
      ...environment(session),
      LOOM_HOST: "opencode",
      LOOM_HOST_SESSION: session.main,
      LOOM_HOST_PID: String(process.pid),
      LOOM_HOST_BUSY: calls.size || !terminal ? "1" : "", // whoever reaches a server's port is not its user
    }
    const words = [LOOMCTL, "hook", "--host", "opencode", word]
    const seconds = SECONDS[word] ?? 5
    const answer = await run(words, { input: JSON.stringify(event), cwd: directory, env, seconds })
    if (word === "pre-compact") return { text: answer.trim() }
    let said = {}
    try {
      said = JSON.parse(answer) ?? {}
    } catch {}
    const toast = { title: "Loom", message: said.line, variant: "info", duration: 8000 }
    if (said.line) asked(client.tui.showToast({ body: toast }))
    return said
  }

  const messages = async (id, limit) => (await asked(client.session.messages({ path: { id }, query: { limit } }))) ?? []

  const begin = async (session) => {
    session.begun = true
    const before = await messages(session.id, 2)
    const cleared = terminal && newest && newest !== session.id
    const source = before.length ? "resume" : cleared ? "clear" : "startup"
    newest = session.id
    return hook(session, "session-start", "SessionStart", { source })
  }

  // Once for each summary that this process has made: tell Loom of it, and keep what it gives in the message that asked
  // for the summary. There it stays for all requests to come. Of another process's a prompt tells Loom.
  const compacted = ({ summary, asks }, session) => {
    if (session.renews !== asks.info.id) {
      session.renews = asks.info.id
      session.begun = true
      session.renewed = (async () => {
        const { text } = await hook(session, "session-start", "SessionStart", { source: "compact" })
        await hook(session, "post-compact", "PostCompact", { compact_summary: written(summary) })
        if (!text) return
        const part = partFor(asks, text, "compacted")
        const path = { id: session.id, messageID: asks.info.id, partID: part.id }
        const url = "/session/{id}/message/{messageID}/part/{partID}"
        const headers = { "content-type": "application/json" }
        await asked(client._client.patch({ url, path, body: part, headers }))
        return part
      })().catch((error) => complain(client, "compaction", error))
    }
    return session.renewed
  }

  const summaryIn = (all, session) => {
    const summary = all.findLast((message) => isSummary(message) && message.info.parentID === session.compacts)
    const asks = summary && all.find((message) => message.info.id === session.compacts)
    return asks && { summary, asks }
  }

  // Wait for what a compaction brings back: a prompt may come before the host tells that it is over.
  const renewal = async (session) => {
    if (session.compacts === session.renews) return session.renewed
    const found = summaryIn(await messages(session.id, 20), session)
    return found && compacted(found, session)
  }

  // What the assistant says, as it is told: at a turn's end there is no time to ask, for `opencode run` ends with it.
  const keep = (info, part) => {
    const at = info?.sessionID ?? part.sessionID
    const known = latest.get(at)
    if (info?.role === "assistant" && known?.info.id !== info.id) latest.set(at, { info, parts: [] })
    else if (info && known?.info.id === info.id) known.info = info
    else if (part?.type === "text" && known?.info.id === part.messageID)
      known.parts = [...known.parts.filter((other) => other.id !== part.id), part]
  }

  const stop = async (session) => {
    const last = latest.get(session.id)
    // Nothing that ended by itself: broken off, a summary, a command of its user's, or told before.
    if (!last?.info.finish || last.info.error || last.info.summary || session.stopped === last.info.id) return
    session.stopped = last.info.id
    const mode = last.info.mode === "plan" ? { permission_mode: "plan" } : {}
    const told = { prompt_id: session.turn, last_assistant_message: written(last), ...mode }
    const { goes_on } = await hook(session, "stop", "Stop", told)
    if (!goes_on || session.turn !== told.prompt_id) return // its user said something meanwhile
    const { agent, model } = session.asked ?? {}
    const parts = [{ type: "text", text: goes_on, metadata: { loom: "goes on", turn: session.turn } }]
    await asked(client.session.promptAsync({ path: { id: session.id }, body: { agent, model, parts } }))
  }

  const events = {
    "session.idle": (_, session) => stop(session),
    "session.compacted": (_, session) => renewal(session),
    "session.deleted": (_, session) => hook(session, "session-end", "SessionEnd", { reason: "deleted" }),
  }

  const hooks = {
    config: async (config) => {
      if (config.server) terminal = false // whoever reaches that port
      for (const [name, command] of Object.entries(commands())) {
        if (!config.command?.[name]) brought.set(name, command.template)
      }
      config.command = { ...commands(), ...config.command }
      config.skills = { ...config.skills, paths: [...(config.skills?.paths ?? []), join(BUNDLE, "skills")] }
    },

    event: async ({ event: { type, properties } }) => {
      if (type === "message.updated") keep(properties.info)
      if (type === "message.part.updated") {
        const { part } = properties
        keep(undefined, part)
        if (part.type !== "tool" || part.state.status !== "error") return
        calls.delete(part.callID)
        const { input, error } = part.state
        const told = { tool_name: part.tool, tool_use_id: part.callID, tool_input: input, error }
        await hook(await known(part.sessionID), "post-tool-use-failure", "PostToolUseFailure", told)
        return
      }
      const id = properties?.sessionID ?? properties?.info?.id
      if (!events[type] || !id) return
      if (type === "session.idle") calls.forEach((at, call) => at === id && calls.delete(call))
      let session = sessions.get(id) ?? known(id)
      if (session.then) session = await session
      if (session.main !== id) return
      const work = events[type]({ sessionID: id }, session)
      working.add(work)
      await work.finally(() => working.delete(work))
    },

    "chat.message": async ({ sessionID }, { message, parts }) => {
      const session = await known(sessionID)
      if (session.main !== sessionID) return
      session.asked = { agent: message.agent, model: message.model }
      const own = parts.find((part) => part.metadata?.loom === "goes on")
      session.turn = own?.metadata.turn ?? message.id
      if (own) return
      await renewal(session)
      const given = session.begun ? {} : await begin(session)
      const told = { prompt: written({ parts }), prompt_id: session.turn }
      const also = await hook(session, "user-prompt-submit", "UserPromptSubmit", told)
      for (const { text } of [given, also]) {
        if (text) parts.push(partFor({ info: message, parts }, text, "given"))
      }
    },

    "command.execute.before": async ({ command, sessionID, arguments: words = "" }, { parts }) => {
      const part = parts.find(({ type }) => type === "text")
      const template = brought.get(command)
      if (!part || !template) return
      const env = environment(await known(sessionID))
      part.metadata = { ...part.metadata, loom: command }
      // What runs is the bundle's own text. What was typed is input there, up to a word that nobody can type.
      const end = `LOOM_${randomUUID().replaceAll("-", "")}`
      const filled = (text) => text.replaceAll("$ARGUMENTS", () => words)
      let told = ""
      let at = 0
      for (const found of template.matchAll(BLOCK)) {
        const script = filled(found[1].replaceAll("LOOM_ARGUMENTS_END", end))
        const output = await run(["sh", "-c", script], { cwd: directory, env, seconds: 300, all: true })
        told += filled(template.slice(at, found.index)) + output.trimEnd()
        at = found.index + found[0].length
      }
      part.text = told + filled(template.slice(at))
    },

    "tool.execute.before": async ({ tool, sessionID, callID }, { args }) => {
      const session = await known(sessionID)
      const told = { tool_name: tool, tool_use_id: callID, prompt_id: session.turn, tool_input: args }
      calls.set(callID, sessionID)
      await hook(session, "pre-tool-use", "PreToolUse", told)
    },

    "tool.execute.after": async ({ tool, sessionID, callID, args }, result) => {
      const session = await known(sessionID)
      const { output, content, metadata } = result
      const tool_response = content ? { content } : { output, metadata: small(metadata) }
      const told = { tool_name: tool, tool_use_id: callID, prompt_id: session.turn, tool_input: args, tool_response }
      calls.delete(callID)
      const said = await hook(session, "post-tool-use", "PostToolUse", told)
      if (said.output?.output) result.output = said.output.output
      if (said.output?.content) result.content = said.output.content
      if (said.text && content) result.content = [...result.content, { type: "text", text: said.text }]
      else if (said.text) result.output += `\n\n${said.text}`
    },

    "shell.env": async ({ sessionID }, { env }) => {
      const own = environment(sessionID && (await known(sessionID)))
      env.PATH = own.PATH
      if (own.OPENCODE_SESSION_ID) env.OPENCODE_SESSION_ID = own.OPENCODE_SESSION_ID
    },

    "experimental.session.compacting": async ({ sessionID }, { context }) => {
      const session = await known(sessionID)
      if (session.main !== sessionID) return
      const all = await messages(sessionID, 5)
      const asking = ({ parts }) => parts.find(({ type }) => type === "compaction")
      const asks = all.findLast(asking)
      session.compacts = asks?.info.id
      const trigger = asks && asking(asks).auto === false ? "manual" : "auto"
      const { text } = await hook(session, "pre-compact", "PreCompact", { trigger })
      if (text) context.push(text)
    },

    "experimental.chat.messages.transform": async (_, { messages: all }) => {
      const id = all.at(-1)?.info.sessionID
      const session = id && (await known(id))
      if (!session || session.main !== id) return
      const found = summaryIn(all, session)
      if (!found || found.asks.parts.some((part) => part.metadata?.loom === "compacted")) return
      const part = await compacted(found, session)
      if (part) found.asks.parts.push(part)
    },

    dispose: async () => {
      await Promise.race([Promise.allSettled(working), new Promise((resolve) => setTimeout(resolve, 5000))])
      const all = await Promise.all(sessions.values())
      const mine = all.filter((session) => session.begun && session.main === session.id)
      await Promise.all(mine.map((session) => hook(session, "session-end", "SessionEnd", { reason: "other" })))
    },
  }
  return failingOpen(hooks, client)
}

export default { id: "loom", server }
