"""What an examination of an installation finds: a standing, what was seen, and the command that mends it."""

from __future__ import annotations

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
