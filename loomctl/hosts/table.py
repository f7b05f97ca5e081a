"""The assistants that Loom works in, a row each, and the form in which each is answered (D70).

What a host cannot do stands in its row.
"""

from __future__ import annotations

import os

from loomctl.kit import quick_json
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.runs.project import Conversation


class Host(NamedTuple):
    """An assistant.

    name: as `--host` and records have it; title: as people call it; typed: how its user calls a command of Loom's.
    session: the variable in which a shell of a session has its id; mark: one that such a shell has in any case; hook,
    project, process: those in which a hook has the session's id, the folder that it was started in, its process. Empty
    where there is none: then the event, the working directory and the hook's parent tell.
    dialect: the module of `hosts.dialects` that turns its events into the protocol's and answers back, empty where they
    are the protocol's own; conversation: the module whose `Transcript` reads what it writes down.
    parts, room: how many outputs it takes at a start, and UTF-16 units of one of them, or of a prompt's; beside: of
    what is told with a tool's result; printed: UTF-8 bytes of a command's output that reach the model.
    replaces: whether a tool's output can be replaced; stops: how many stops in a row it lets be blocked; cap: the
    variable that says otherwise; counts_on: whether a tool's call between them makes no new row. mend: what a user
    does where its hooks are not called.
    starts: whether it tells of a session's start; else a session's first prompt is its start.
    asks: whether it asks its user about a call where a hook says so (D68). sandbox: the first process in the sandbox
    of one that shuts what its assistant runs out of the user's own folders; the launcher knows, too. cannot: the
    promises that do not hold there, as the tests name them, each with its reason.
    clears: whether it says of a start that it follows a clear; names_subagents: whether a subagent's shell and events
    bear an id of the subagent's own.
    behind: of what can be put behind a tool's own output, 0 where nothing can. restores: the events, by their words, of
    which the first after a compaction primes again, where no start follows one (`protocol.restores`); summariser:
    whether it hears what a compaction must keep; repeats: whether the assistant is shown that again where a person
    asked for the compaction. shared: whether one process may hold sessions of several people, so that being of the same
    one proves nothing.
    """

    name: str
    title: str
    typed: str = "/loom:{}"
    session: str = ""
    mark: str = ""
    hook: str = ""
    project: str = ""
    process: str = ""
    dialect: str = ""
    conversation: str = ""
    parts: int = 1
    room: int = 9_500
    beside: int = 9_500
    behind: int = 0
    printed: int = 24_000
    replaces: bool = True
    stops: int = 8
    cap: str = ""
    counts_on: bool = False
    mend: str = "see loomctl doctor"
    asks: bool = False
    sandbox: str = ""
    starts: bool = True
    cannot: tuple[tuple[str, str], ...] = ()
    clears: bool = True
    names_subagents: bool = False
    restores: tuple[str, ...] = ()
    summariser: bool = True
    repeats: bool = True
    shared: bool = False


CLAUDE = Host(
    "claude-code",
    "Claude Code",
    session="CLAUDE_CODE_SESSION_ID",
    mark="CLAUDECODE",
    hook="CLAUDE_CODE_SESSION_ID",
    project="CLAUDE_PROJECT_DIR",
    process="CLAUDE_PID",
    conversation="loomctl.hosts.claude.transcript",
    parts=4,
    cap="CLAUDE_CODE_STOP_HOOK_BLOCK_CAP",
    asks=True,
)
CODEX = Host(
    "codex",
    "Codex CLI",
    typed="$loom:loom-{}",
    session="CODEX_THREAD_ID",
    mark="CODEX_THREAD_ID",
    dialect="codex",
    conversation="loomctl.hosts.dialects.codex",
    room=38_000,  # of its limit of 10,000 bytes each entry in hooks/codex.json is relieved
    beside=38_000,
    printed=9_500,
    mend="trust them with /hooks",
    sandbox="codex-linux-sandbox",
    shared=True,  # all of its terminals have one process in the background
    cannot=(
        (
            "the summariser is told what must survive",
            "its hook before a compaction can say nothing; what the summary dropped is put back",
        ),
    ),
)
QWEN = Host(
    "qwen",
    "Qwen Code",
    session="QWEN_CODE_SESSION_ID",
    mark="QWEN_CODE",
    hook="QWEN_CODE_SESSION_ID",
    project="QWEN_PROJECT_DIR",
    dialect="qwen",
    conversation="loomctl.hosts.dialects.qwen",
    room=38_000,
    beside=9_500,
    replaces=False,
    stops=7,  # it ends the turn in place of the eighth, or where its settings say
    counts_on=True,
    asks=True,
    mend="look with /hooks, and qwen extensions list",
    cannot=(
        ("the user is shown one line", "it shows what a hook says at a turn's end alone"),
        (
            "large output is shortened while the assistant works",
            "no hook of its can replace what a tool gave; the run's history is short all the same",
        ),
    ),
)
COPILOT = Host(
    "copilot",
    "Copilot CLI",
    session="COPILOT_AGENT_SESSION_ID",
    mark="COPILOT_CLI",
    project="COPILOT_PROJECT_DIR",
    dialect="copilot",
    conversation="loomctl.hosts.dialects.copilot",
    room=38_000,  # 200,000 arrived whole
    printed=16_000,  # above 20,480 bytes it puts the output away; a command's own lines have 4,000
    behind=38_000,  # what is told beside is cut at 10,000 units, a modified result of 60,000 is not
    counts_on=True,
    asks=True,
    clears=False,
    names_subagents=True,
    restores=("post-tool-use", "user-prompt-submit"),  # its compaction goes on beside the turn, and tells no end
    summariser=False,
    mend="look into the newest file of ~/.copilot/logs for an invalid hooks file",
    cannot=(
        (
            "the summariser is told what must survive",
            "its hook before a compaction can say nothing; what the summary dropped is put back",
        ),
    ),
)
OPENCODE = Host(
    "opencode",
    "OpenCode",
    session="OPENCODE_SESSION_ID",  # the plugin sets it
    mark="OPENCODE",
    process="OPENCODE_PID",
    dialect="opencode",
    conversation="loomctl.hosts.dialects.opencode",
    room=38_000,
    beside=38_000,
    mend="loomctl plugin install opencode, and start it again",
    repeats=False,
    shared=True,
)
GEMINI = Host(
    "gemini",
    "Gemini CLI",
    mark="GEMINI_CLI",
    hook="GEMINI_SESSION_ID",
    project="GEMINI_PROJECT_DIR",
    dialect="gemini",
    conversation="loomctl.hosts.dialects.gemini",
    room=38_000,  # 60,000 arrived whole
    beside=30_000,  # of a result of over 40,000 it keeps the last 32,000
    replaces=False,  # a result that is replaced looks like an error to the assistant
    starts=False,  # in -p what its SessionStart gives is put before the prompt, whose slash command is none then
    restores=("post-tool-use", "user-prompt-submit"),  # nothing but its file tells of a compaction
    summariser=False,
    mend="look with /hooks, and gemini extensions list",
    cannot=(
        ("the summariser is told what must survive", "none of its hooks is heard there; what was lost is put back"),
        (
            "large output is shortened while the assistant works",
            "a result that a hook replaces reads like an error there; the run's history is short all the same",
        ),
    ),
)
HOSTS = {host.name: host for host in (CLAUDE, CODEX, COPILOT, QWEN, GEMINI, OPENCODE)}

# The files in a project that hosts read as their memory, each with the line that leads from it to `.loom/now.md`: an
# import where the host follows one, as seen in each of them, else words (D62).
_IMPORTS = "@.loom/now.md"
_POINTS = (
    "Loom: read .loom/now.md at the start and after each compaction; it says where the run stands and what is next."
)
_AGENTS = (("AGENTS.md", _POINTS),)
OTHER = "other"
MEMORY = {
    CLAUDE.name: (("CLAUDE.local.md", _IMPORTS), (".claude/rules/loom.md", "@../../.loom/now.md")),
    CODEX.name: _AGENTS,
    COPILOT.name: _AGENTS,
    OPENCODE.name: _AGENTS,
    GEMINI.name: (("GEMINI.md", _IMPORTS),),
    QWEN.name: (("QWEN.md", _IMPORTS),),
    OTHER: _AGENTS,
}
MEMORY_LINES = {file: line for files in MEMORY.values() for file, line in files}
NAMED, _SESSION, _PROCESS = "LOOM_HOST", "LOOM_HOST_SESSION", "LOOM_HOST_PID"  # as the launcher found them


# What assistants say of themselves in the environment of what they start, and how such names begin.
MARKS = (
    "CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CODEX_SESSION_ID", "CODEX_THREAD_ID", "COPILOT_CLI", "CURSOR_AGENT",
    "GEMINI_CLI", "OPENCODE", "QWEN_CODE",
)  # fmt: skip
_OWN = ("CLAUDE", "CODEX_", "COPILOT_", "GEMINI_CLI", "GEMINI_SESSION", "OPENCODE", "QWEN_CODE")
SETTINGS = "~/.claude/settings.json, or a project's .claude/settings.json"  # which may name a status line


def without_hosts(environ: Mapping[str, str]) -> dict[str, str]:
    """Give an environment without what assistants say in it."""
    return {name: value for name, value in environ.items() if not name.startswith(_OWN)}


def of_hook() -> Host:
    """Give the host that called this hook, as its bundle says (D71)."""
    return HOSTS.get(os.environ.get(NAMED, ""), CLAUDE)


def session_of_hook(host: Host) -> str:
    """Give the id of the session that called this hook, where its event does not say it; empty if nothing does."""
    return os.environ.get(host.hook or _SESSION, "")


def process_of(host: Host) -> int | None:
    """Give the host's process, as it names itself to hooks and shells, or the launcher found it."""
    named = os.environ.get(host.process or _PROCESS, "")
    return int(named) if named.isascii() and named.isdigit() and len(named) < 10 else None


def conversation(host: Host, path: str | None) -> Conversation:
    """Give what can be seen of a conversation of the host's. path: of its transcript, None where that is not known."""
    made: Conversation = _module(host.conversation).Transcript(path)
    made.of_host = _conversation_of
    return made


def _conversation_of(name: str, path: str | None) -> Conversation:
    return conversation(HOSTS.get(name, CLAUDE), path)


def rereads(host: Host) -> tuple[str, ...]:
    """Give the files of its memory that a host reads again, with what they import, whenever a conversation begins."""
    return tuple(file for file, _ in MEMORY[host.name]) if host is CLAUDE else ()


def dialect(host: Host) -> Any:
    """Give the module with `read` and `write`; None for a host that speaks as the protocol does."""
    return _module(f"loomctl.hosts.dialects.{host.dialect}") if host.dialect else None


def in_shape(word: str, event: dict[str, Any]) -> dict[str, Any]:
    """Give an event of the asking host's in the protocol's shape. word: by which its hook is called."""
    host = of_hook()
    return dialect(host).read(word, event) if host.dialect else event


class Answer(NamedTuple):
    """What an event is answered; each field may be empty.

    event: its name as the protocol has it; text: for the assistant; line: for its user; goes_on: the words with which
    the turn goes on; decision, why: on a tool's call, `allow` or `ask`; output: what stands in place of a tool's.
    """

    event: str
    text: str = ""
    line: str = ""
    goes_on: str = ""
    decision: str = ""
    why: str = ""
    output: Any = None


def written(answer: Answer, host: Host | None = None) -> str:
    """Give an answer as the host that asks takes it; empty where nothing is said.

    host: the one that is answered where no hook asks.
    """
    host = host or of_hook()
    answer = answer._replace(line=for_people(answer.line) if answer.line else "")
    return str(dialect(host).write(answer)) if host.dialect else plain(answer)


def plain(answer: Answer) -> str:
    """Give an answer in the protocol's own form; empty where nothing is said."""
    own: dict[str, Any] = {}
    if answer.decision:
        own |= {"permissionDecision": answer.decision, "permissionDecisionReason": answer.why}
    if answer.output is not None:
        own["updatedToolOutput"] = answer.output
    if answer.text:
        own["additionalContext"] = answer.text
    told: dict[str, Any] = {"decision": "block", "reason": answer.goes_on} if answer.goes_on else {}
    if own:
        told["hookSpecificOutput"] = {"hookEventName": answer.event, **own}
    if answer.line:
        told["systemMessage"] = answer.line
    return quick_json.plain(told) if told else ""


def for_people(line: str) -> str:
    """Give a line as a user is shown it: masked, and begun with Loom's name."""
    from loomctl.kit.text.fences import visible
    from loomctl.kit.text.secrets import mask

    return visible(mask(line if line.startswith("Loom") else f"Loom: {line}")[0])


def _module(name: str) -> Any:
    return __import__(name, fromlist=("",))


def sessions(environ: Mapping[str, str]) -> list[tuple[Host, str]]:
    """Give the hosts' sessions of which an environment has the id: an assistant's shell inherits those around it."""
    return [(host, environ[host.session]) for host in HOSTS.values() if host.session and environ.get(host.session)]


def started_in(environ: Mapping[str, str]) -> list[str]:
    """Give the folders that hosts around this process say they were started in."""
    return [environ[host.project] for host in HOSTS.values() if host.project and environ.get(host.project)]
