"""Assistants without a person: how each is started for a turn, and what a line of its output means (D73).

One file a host, of pure functions: `command(order)` and `read(line)`. TELLS_COST: whether it says what a turn cost.
"""

from __future__ import annotations

import importlib
import shutil
from typing import TYPE_CHECKING, cast

from loomctl.hosts import table
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_USAGE, LoomError

if TYPE_CHECKING:
    from loomctl.drive.dialect import Dialect

_KNOWN = {table.CLAUDE.name: "claude", table.CODEX.name: "codex"}
_HELP = "loomctl drive --help"
# How those that are not driven take a prompt from standard input, and may edit files.
_ON_INPUT = {
    "gemini": "gemini --approval-mode auto_edit",
    "qwen": "qwen --approval-mode auto-edit",
    "copilot": "sh -c 'copilot -p \"$(cat)\"'",
    "opencode": "sh -c 'opencode run \"$(cat)\"'",
}


def of(host: str) -> Dialect:
    """Give how a host is driven. Raises NO_DRIVER."""
    name = _KNOWN.get(host)
    if name is None:
        raise _not_driven(host)
    return cast("Dialect", importlib.import_module(f"loomctl.hosts.headless.{name}"))


def that_are_here() -> frozenset[str]:
    """Name the assistants that are on PATH."""
    return frozenset(name for name in _KNOWN if shutil.which(of(name).PROGRAM))


def that_tell_costs() -> frozenset[str]:
    """Name the assistants that say what they cost."""
    return frozenset(name for name in _KNOWN if of(name).TELLS_COST)


def that_take_rules() -> frozenset[str]:
    """Name the assistants that are told what they may do."""
    return frozenset(name for name in _KNOWN if of(name).TAKES_RULES)


def _not_driven(host: str) -> LoomError:
    row = table.HOSTS.get(host)
    what = f"Loom does not drive {row.title} yet" if row is not None else f"Loom cannot drive {host!r:.80}"
    such = f", such as `-- {_ON_INPUT[host]}`" if host in _ON_INPUT else ""
    why = f"it drives {' and '.join(table.HOSTS[name].title for name in _KNOWN)}, and any command behind --{such}"
    return LoomError("NO_DRIVER", what, why=why, hint=_HELP, exit_code=EXIT_USAGE)


def refuse_unheld(host: str | None, *, cost: float | None, allow: tuple[str, ...]) -> None:
    """Refuse a limit or a permission that nobody would keep. host: None for a command. Raises NO_COST and NO_RULES."""
    own = of(host) if host else None
    title = table.HOSTS[host].title if host else "a command"
    if cost is not None and not (own and own.TELLS_COST):
        what = f"{title} does not say what it costs, so --max-cost would hold nothing"
        why = "--max-turns and --max-time limit it"
        raise LoomError("NO_COST", what, why=why, hint=_HELP, exit_code=EXIT_USAGE)
    if allow and not (own and own.TAKES_RULES):
        what = f"{title} takes no rules, so --allow would allow nothing"
        why = own.WIDENED if own else "the command behind -- says itself what it may do"
        raise LoomError("NO_RULES", what, why=why, hint=_HELP, exit_code=EXIT_USAGE)


def refuse_absent(host: str) -> None:
    """Refuse to begin a run for an assistant that is not there. Raises NO_ASSISTANT and NO_DRIVER."""
    own = of(host)
    if shutil.which(own.PROGRAM) is None:
        what = f"the assistant could not be started: there is no {own.PROGRAM} on PATH"
        raise LoomError("NO_ASSISTANT", what, why=own.INSTALL, hint="loomctl doctor", exit_code=EXIT_FINDINGS)


def passes_on_nothing(host: str | None) -> str:
    """Say that what a workflow's steps may use is told to nobody; empty where it is. host: None for a command."""
    own = of(host) if host else None
    if own and own.TAKES_RULES:
        return ""
    title = table.HOSTS[host].title if host else "The command"
    return f"{title} takes no rules, so what this workflow lets its steps use (`allow`) changes nothing there."
