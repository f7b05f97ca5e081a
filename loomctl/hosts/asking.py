"""The assistant that asks: what is known of it, how its events are read, and the form in which it is answered (D70).

Each hook imports this and not the rows of all (`table`), of which Claude Code's stands here, for its hooks are the
protocol's own.
"""

from __future__ import annotations

import os

from loomctl.kit import quick_json
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from loomctl.runs.project import Conversation

NAMED, _PROCESS = "LOOM_HOST", "LOOM_HOST_PID"  # as the launcher found them

# The files in a project that hosts read as their memory, each with the line that leads from it to `.loom/now.md`: an
# import where the host follows one, as seen in each of them, else words (D62).
_IMPORTS = "@.loom/now.md"
_POINTS = (
    "Loom: read .loom/now.md at the start and after each compaction; it says where the run stands and what is next."
)
MEMORY_LINES = {
    "CLAUDE.local.md": _IMPORTS,
    ".claude/rules/loom.md": "@../../.loom/now.md",
    "AGENTS.md": _POINTS,
    "GEMINI.md": _IMPORTS,
    "QWEN.md": _IMPORTS,
}


# Promises that a hook asks about, as the tests name them.
SHORTENS = "large output is shortened while the assistant works"
TELLS_SUMMARISER = "the summariser is told what must survive"
STOPS = 8  # in a row that a host lets be blocked


class Host(NamedTuple):
    """An assistant.

    name: as `--host` and records have it; title: as people call it; typed: how its user calls a command of Loom's.
    session: the variable in which a shell of a session has its id; mark: one that such a shell has in any case;
    project, process: those in which a hook has the folder that it was started in, and its process. Empty where there is
    none: then the working directory and the hook's parent tell.
    parts, room: how many outputs it takes at a start, and UTF-16 units of one of them, or of a prompt's; beside: of
    what is told with a tool's result; printed: UTF-8 bytes of a command's output that reach the model.
    counts_on: whether a tool's call between two blocked stops makes no new row of them. mend: what a user does where
    its hooks are not called.
    starts: whether it tells of a session's start; else a session's first prompt is its start. shows_starts: whether its
    conversation shows what a start gave as the hook of the next prompt is called.
    asks: whether it asks its user about a call where a hook says so (D68). sandbox: the first process in the sandbox
    of one that shuts what its assistant runs out of the user's own folders; the launcher knows, too. cannot: the
    promises that do not hold there, as the tests name them, each with its reason.
    memory: the files in a project that it reads as its own (`MEMORY_LINES`).
    clears: whether it says of a start that it follows a clear; names_subagents: whether a subagent's shell and events
    bear an id of the subagent's own.
    behind: of what can be put behind a tool's own output, 0 where nothing can. primes_at: the events, by their words,
    of which the first after a compaction primes again, where no start follows one (`protocol.restores`); repeats:
    whether the assistant is shown what a compaction must keep again where a person asked for the compaction. shared:
    whether one process may hold sessions of several people, so that being of the same one proves nothing.
    """

    name: str
    title: str
    typed: str = "/loom:{}"
    session: str = ""
    mark: str = ""
    project: str = ""
    process: str = ""
    parts: int = 1
    room: int = 9_500
    beside: int = 9_500
    behind: int = 0
    printed: int = 24_000
    counts_on: bool = False
    mend: str = "see loomctl doctor"
    asks: bool = False
    sandbox: str = ""
    starts: bool = True
    shows_starts: bool = True
    cannot: tuple[tuple[str, str], ...] = ()
    clears: bool = True
    names_subagents: bool = False
    primes_at: tuple[str, ...] = ()
    repeats: bool = True
    shared: bool = False
    memory: tuple[str, ...] = ("AGENTS.md",)


CLAUDE = Host(
    "claude-code",
    "Claude Code",
    session="CLAUDE_CODE_SESSION_ID",
    mark="CLAUDECODE",
    project="CLAUDE_PROJECT_DIR",
    process="CLAUDE_PID",
    parts=4,
    asks=True,
    memory=("CLAUDE.local.md", ".claude/rules/loom.md"),
)


def host() -> Host:
    """Give the host that called this hook, as its bundle says (D71)."""
    return named(os.environ.get(NAMED, ""))


def process_of(host: Host) -> int | None:
    """Give the host's process, as it names itself to hooks and shells, or the launcher found it."""
    said = os.environ.get(host.process or _PROCESS, "")
    return int(said) if said.isascii() and said.isdigit() and len(said) < 10 else None


def named(name: str) -> Host:
    """Give a host by its name; Claude Code for one that is not known."""
    if name in ("", CLAUDE.name):
        return CLAUDE
    known: dict[str, Host] = _module("loomctl.hosts.table").HOSTS  # few hooks are another's
    return known.get(name, CLAUDE)


def conversation(host: Host, path: str | None) -> Conversation:
    """Give what can be seen of a conversation of the host's. path: of its transcript, None where that is not known."""
    own = dialect(host) or _module("loomctl.hosts.protocol.transcript")
    made: Conversation = own.Transcript(path)
    made.of_host = _conversation_of
    return made


def _conversation_of(name: str, path: str | None) -> Conversation:
    return conversation(named(name), path)


def can(host: Host, promise: str) -> bool:
    """Tell whether a promise holds in a host."""
    return all(promise != one for one, _ in host.cannot)


def stops() -> int:
    """Give how many stops in a row the protocol's own host lets be blocked, as its user may say."""
    said = os.environ.get("CLAUDE_CODE_STOP_HOOK_BLOCK_CAP", "")
    return int(said) if said.isascii() and said.isdigit() and len(said) < 6 else STOPS


def rereads(host: Host) -> tuple[str, ...]:
    """Give the files of its memory that a host reads again, with what they import, whenever a conversation begins."""
    return host.memory if host is CLAUDE else ()


def dialect(host: Host) -> Any:
    """Give the module of `hosts.dialects` that is the host's; None for the one that speaks as the protocol does."""
    return _module(f"loomctl.hosts.dialects.{host.name}") if host.name != CLAUDE.name else None


def in_shape(word: str, event: dict[str, Any]) -> dict[str, Any]:
    """Give an event of the asking host's in the protocol's shape. word: by which its hook is called."""
    own = dialect(host())
    return own.read(word, event) if own else event


class Answer(NamedTuple):
    """What an event is answered; each field may be empty.

    event: its name as the protocol has it; text: for the assistant; line: for its user; goes_on: the words with which
    the turn goes on; decision, why: on a tool's call, as `tool_calls` has it: `allow`, `ask` or `deny`; output: what
    stands in place of a tool's.
    """

    event: str
    text: str = ""
    line: str = ""
    goes_on: str = ""
    decision: str = ""
    why: str = ""
    output: Any = None


def written(answer: Answer, to: Host | None = None) -> str:
    """Give an answer as the host that asks takes it; empty where nothing is said.

    to: the one that is answered where no hook asks.
    """
    own = dialect(to or host())
    answer = answer._replace(line=for_people(answer.line) if answer.line else "")
    return str(own.write(answer)) if own else plain(answer)


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
