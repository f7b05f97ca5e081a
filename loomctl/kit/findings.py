"""What an examination of an installation finds: a standing, what was seen, and the command that mends it.

Which command makes a bundle whole or newer depends on how it came here.
"""

from __future__ import annotations

import os

from loomctl.kit.errors import UPDATE, LoomError, quoted
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

PASS, WARN, FAIL = "PASS", "WARN", "FAIL"
_WORSE = (PASS, WARN, FAIL)


class Finding(NamedTuple):
    """status: PASS, WARN or FAIL; hint: a command that can be pasted; details: further lines.

    facts: what a script may want besides, by name.
    """

    status: str
    found: str
    hint: str = ""
    details: Sequence[str] = ()
    facts: Mapping[str, Any] = {}


def gathered(
    troubles: Sequence[Finding], fine: str, *, details: Sequence[str] = (), facts: Mapping[str, Any] | None = None
) -> Finding:
    """Make one finding of several troubles: the worst comes first, the others are its details. None: `fine`."""
    facts = facts or {}
    if not troubles:
        return Finding(PASS, fine, "", tuple(details), facts)
    worst, *others = sorted(troubles, key=lambda one: -_WORSE.index(one.status))
    more = [f"{one.found}: {one.hint}" if one.hint else one.found for one in others]
    return Finding(worst.status, worst.found, worst.hint, (*worst.details, *more, *details), {**worst.facts, **facts})


REINSTALL = "claude plugin install loom@loom"


UPDATE_HELPER = "pipx upgrade loomctl"


def update(bundle: str) -> str:
    """Give the line that fetches what is newer: of a checkout, which a host loads in place, git's own."""
    if _is_wheel(bundle):
        return UPDATE_HELPER
    return update_plugin(bundle)


def update_plugin(bundle: str) -> str:
    """Give the line for the plugin, whose bundle may be this one."""
    return f"git -C {quoted(bundle)} pull" if _is_checkout(bundle) else UPDATE


def repair(bundle: str, part: str) -> str:
    """Give the line that brings back a part of a bundle, such as `hooks`."""
    return f"git -C {quoted(bundle)} checkout -- {part}" if _is_checkout(bundle) else REINSTALL


def new_environment(bundle: str, folder: str) -> str:
    """Give the line that makes Loom's own environment, in a folder, anew."""
    return "pipx reinstall loomctl" if _is_wheel(bundle) else f"rm -r {quoted(folder)} && loomctl --version"


def fitting(error: LoomError, bundle: str) -> LoomError:
    """Give an error whose hint is for this bundle, where it names what only the disk can tell."""
    if error.hint == UPDATE:
        error.hint = update(bundle)
    return error


def _is_wheel(bundle: str) -> bool:
    return os.path.basename(bundle) == "_bundle"


def _is_checkout(bundle: str) -> bool:
    return os.path.exists(os.path.join(bundle, ".git"))
