"""The assistants that Loom works in, a row each (D70); what a host cannot do stands here, too."""

from __future__ import annotations

from loomctl.hosts import asking
from loomctl.hosts.asking import SHORTENS, TELLS_SUMMARISER, Host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

CLAUDE = asking.CLAUDE
CODEX = Host(
    "codex",
    "Codex CLI",
    typed="$loom:loom-{}",
    session="CODEX_THREAD_ID",
    mark="CODEX_THREAD_ID",
    room=38_000,  # of its limit of 10,000 bytes each entry in hooks/codex.json is relieved
    beside=38_000,
    printed=9_500,
    mend="trust them with /hooks",
    sandbox="codex-linux-sandbox",
    shared=True,  # all of its terminals have one process in the background
    cannot=(
        (
            TELLS_SUMMARISER,
            "its hook before a compaction can say nothing; what the summary dropped is put back",
        ),
    ),
)
QWEN = Host(
    "qwen",
    "Qwen Code",
    session="QWEN_CODE_SESSION_ID",
    mark="QWEN_CODE",
    project="QWEN_PROJECT_DIR",
    room=38_000,
    beside=9_500,
    memory=("QWEN.md",),
    counts_on=True,
    asks=True,
    mend="look with /hooks, and qwen extensions list",
    cannot=(
        ("the user is shown one line", "it shows what a hook says at a turn's end alone"),
        (
            SHORTENS,
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
    room=38_000,  # 200,000 arrived whole
    printed=16_000,  # above 20,480 bytes it puts the output away; a command's own lines have 4,000
    behind=38_000,  # what is told beside is cut at 10,000 units, a modified result of 60,000 is not
    counts_on=True,
    asks=True,
    clears=False,
    shows_starts=False,  # it asks both hooks side by side
    names_subagents=True,
    primes_at=("post-tool-use", "user-prompt-submit"),  # its compaction goes on beside the turn, and tells no end
    mend="look into the newest file of ~/.copilot/logs for an invalid hooks file",
    cannot=(
        (
            TELLS_SUMMARISER,
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
    room=38_000,
    beside=38_000,
    mend="loomctl plugin install opencode, and start it again",
    repeats=False,
    shared=True,
    shows_starts=False,  # it stands in the message of the prompt
)
GEMINI = Host(
    "gemini",
    "Gemini CLI",
    mark="GEMINI_CLI",
    project="GEMINI_PROJECT_DIR",
    room=38_000,  # 60,000 arrived whole
    beside=30_000,  # of a result of over 40,000 it keeps the last 32,000
    memory=("GEMINI.md",),
    starts=False,  # in -p what its SessionStart gives is put before the prompt, whose slash command is none then
    primes_at=("post-tool-use", "user-prompt-submit"),  # nothing but its file tells of a compaction
    mend="look with /hooks, and gemini extensions list",
    cannot=(
        (TELLS_SUMMARISER, "none of its hooks is heard there; what was lost is put back"),
        (
            SHORTENS,
            "a result that a hook replaces reads like an error there; the run's history is short all the same",
        ),
    ),
)
HOSTS = {host.name: host for host in (CLAUDE, CODEX, COPILOT, QWEN, GEMINI, OPENCODE)}
OTHER = "other"
MEMORY = {**{host.name: host.memory for host in HOSTS.values()}, OTHER: ("AGENTS.md",)}
"""The files of their memory, by the hosts' names; `OTHER` stands for each that reads AGENTS.md."""


# What assistants say of themselves in the environment of what they start, and how such names begin.
MARKS = tuple(
    sorted({"CODEX_SESSION_ID", "CURSOR_AGENT"}.union(*({host.mark, host.session} - {""} for host in HOSTS.values())))
)
_OWN = ("CLAUDE", "CODEX_", "COPILOT_", "GEMINI_CLI", "GEMINI_SESSION", "OPENCODE", "QWEN_CODE")
SETTINGS = "~/.claude/settings.json, or a project's .claude/settings.json"  # which may name a status line


def without_hosts(environ: Mapping[str, str]) -> dict[str, str]:
    """Give an environment without what assistants say in it."""
    return {name: value for name, value in environ.items() if not name.startswith(_OWN)}


_OF_A_CALL = frozenset(
    f"LOOM_{name}"
    for name in (
        *("HOST", "HOST_SESSION", "HOST_BUSY", "HOST_PID", "CALLER", "DRIVEN"),
        *("RUN_ID", "STEP_ID", "STAGE_DIR", "COMMAND_KEY"),
    )
)


def for_another(environ: Mapping[str, str]) -> dict[str, str]:
    """Give an environment for an assistant that is started on its own: without what those around it say of themselves.

    Their users' settings stay; what Loom tells hooks and a run's commands goes.
    """
    said = {name for host in HOSTS.values() for name in (host.session, host.mark, host.project, host.process)}
    return {name: value for name, value in environ.items() if name not in said and name not in _OF_A_CALL}


def sessions(environ: Mapping[str, str]) -> list[tuple[Host, str]]:
    """Give the hosts' sessions of which an environment has the id: an assistant's shell inherits those around it."""
    return [(host, environ[host.session]) for host in HOSTS.values() if host.session and environ.get(host.session)]


def started_in(environ: Mapping[str, str]) -> list[str]:
    """Give the folders that hosts around this process say they were started in."""
    return [environ[host.project] for host in HOSTS.values() if host.project and environ.get(host.project)]
