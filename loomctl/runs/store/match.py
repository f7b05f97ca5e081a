"""Which run a word means: an id, a handle, or the unique beginning of either (D4, D69)."""

from __future__ import annotations

import time

from loomctl.kit import clock, ids
from loomctl.kit.errors import EXIT_NO_RUN, LoomError
from loomctl.runs.model import state
from loomctl.runs.store import layouts, run_index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.store.store import Store

_MOST = 20  # runs that an error lists


class AmbiguousRunError(LoomError):
    """Several runs are listed instead of guessing (D1). found: their ids; verb: the command that the hint has."""

    def __init__(self, store: Store, found: Sequence[str], verb: str = "loomctl show") -> None:
        from loomctl.kit.text.fences import one_line
        from loomctl.kit.text.secrets import mask

        known = [one for one in run_index.summaries(store, keep=False) if one["run_id"] in found]
        called, now = handles(store, known), time.time()
        width = max((len(called[one["run_id"]]) for one in known[:_MOST]), default=0)
        lines = []
        for one in known[:_MOST]:
            work = one_line(mask(str(one.get("goal") or one.get("work_id") or "not readable"))[0], max(10, 58 - width))
            at = f", {clock.ago(one['updated_at'], now)}" if one.get("updated_at") else ""
            lines.append(f"    {called[one['run_id']]:{width}}  {work}{at}")
        more = [f"    and {len(found) - _MOST} more: loomctl runs"] if len(found) > _MOST else []
        first = called.get(found[0], found[0])
        super().__init__(
            "AMBIGUOUS_RUN",
            f"{len(found)} runs could be meant",
            why="\n".join(["type one of these, or its beginning:", *lines, *more]),
            hint=f"{verb} {first}",
            exit_code=EXIT_NO_RUN,
        )
        self.found = tuple(found)
        self.meant = {"run": first}


def match(store: Store, word: str) -> str:
    """Give the id of the one run that a word means. Raises BAD_ID, NO_SUCH_RUN and AMBIGUOUS_RUN.

    An id or a whole handle costs no look into other runs' states.
    """
    word = ids.checked_id(layouts.last_part(word))
    if store.has(word):
        return word
    every, end = store.run_ids(), word.rpartition("-")[2]
    if len(end) >= ids.MARK:
        marked = [run_id for run_id in every if ids.mark(run_id, len(end)) == end]
        found = [run_id for run_id in marked if store.handle(run_id, len(end)) in (word, run_id)]
        if len(found) == 1:
            return found[0]
    called = handles(store, run_index.summaries(store, keep=False))
    # People see handles alone: every id may begin with the folder's name, which begins a handle, too.
    found = [run_id for run_id in every if called.get(run_id, "").startswith(word)]
    found = found or [run_id for run_id in every if run_id.startswith(word)]
    if len(found) > 1:
        raise AmbiguousRunError(store, found)
    if found:
        return found[0]
    try:
        return store.home(word).run_id
    except LoomError as error:
        raise _led_on(error, word, [*called.values()]) from None


def _led_on(error: LoomError, word: str, called: Sequence[str]) -> LoomError:
    """Name the run whose handle, with or without its mark, or whose beginning is near to a word that means none."""
    if error.code == "NO_SUCH_RUN":
        from loomctl.kit.problems import nearest

        forms = {form: one for one in called for form in (one[: len(word)], one.rpartition("-")[0], one)}
        meant = forms.get(nearest(word, forms) or "")
        if meant is not None:
            error.why, error.meant = f"did you mean {meant}?", {"run": meant}
    return error


def handles(store: Store, summaries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Give each run's handle by its id; of several that would be one each has more letters."""
    called: dict[str, str] = {}
    letters = ids.MARK
    left = list(summaries)
    while left:
        made = [
            store.handle(one["run_id"], letters) if one["status"] is None else state.handle(one, letters)
            for one in left
        ]
        called |= {one["run_id"]: handle for one, handle in zip(left, made, strict=True)}
        left = [one for one, handle in zip(left, made, strict=True) if made.count(handle) > 1 and letters < 40]
        letters += 2
    return called
