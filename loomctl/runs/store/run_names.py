"""Which run a person names: by its id or by the beginning of one (D4); what is no run's name, or several runs'."""

from __future__ import annotations

import os

from loomctl.kit.errors import EXIT_NO_RUN, LoomError
from loomctl.runs.store import layouts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence


def match(known: Collection[str], prefix: str) -> str | None:
    """Give the one run whose id is, or begins with, `prefix`; None where none does. Raises AMBIGUOUS_RUN."""
    if prefix in known:
        return prefix
    found = [run_id for run_id in known if run_id.startswith(prefix)]
    if len(found) == 1:
        return found[0]
    if found:
        raise AmbiguousRunError(found)
    return None


def no_such_run(named: str, store: str, roots: Sequence[str]) -> LoomError:
    """Make the error of a name that is no run's. store: its folder; roots: of FABER's runs."""
    return LoomError(
        "NO_SUCH_RUN",
        f"there is no run {named!r} here",
        where=_where_runs_are(store, roots),
        hint="loomctl runs",
        exit_code=EXIT_NO_RUN,
    )


def _where_runs_are(store: str, roots: Sequence[str]) -> str:
    """Name the folder in which runs are looked for: FABER's where Loom has none of its own."""
    own = os.path.join(store, "runs")
    fabers = next((path for root in roots if os.path.isdir(path := os.path.join(root, layouts.FABER))), "")
    return own if os.path.isdir(own) or not fabers else fabers


def shown(run_id: str) -> str:
    """Give the command that shows a run, whatever its standing: what a hint says of one that was not named."""
    return f"loomctl show {run_id}"


class AmbiguousRunError(LoomError):
    """Several runs are listed instead of guessing (D1). found: their ids."""

    def __init__(self, found: Sequence[str], way: Callable[[str], str] = shown) -> None:
        listed = "\n".join(f"    {run_id}" for run_id in found[:20])
        more = f"\n    and {len(found) - 20} more" if len(found) > 20 else ""
        super().__init__(
            "AMBIGUOUS_RUN",
            f"{len(found)} runs could be meant",
            why=f"name one, or its beginning; they are\n{listed}{more}",
            hint=way(found[0]),
            exit_code=EXIT_NO_RUN,
        )
        self.found = tuple(found)

    def by(self, way: Callable[[str], str]) -> AmbiguousRunError:
        """Give the error with another way on in its hint: a command line, made of the run's id."""
        return AmbiguousRunError(self.found, way)
