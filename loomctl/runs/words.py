"""Which run and which stage of it are meant by the words behind `show` and `diff`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.runs import find, stage_records
from loomctl.runs.store.layouts import AmbiguousRunError, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run


def meant(space: Workspace, word: str | None, stage: str | None) -> tuple[Run, str | None]:
    """Give the run to look at, and the word for its stage, if one is meant.

    word: a run, or the only word: then also a stage of the current run (bound or the only active one, D1), by whatever
    `stage_records.find` knows it. Raises what finding and reading a run do, and AMBIGUOUS_WORD.
    """
    if word is None or stage is not None:
        return current(space, word), stage
    if "@" in word:  # no run's id has that
        return _with_stage(space, word), word
    run_id, trouble = _matched(space, word)
    if run_id == word:
        return space.store.read(run_id, to_show=True), None
    here = _current(space)
    stages = [entry["stage"] for entry in stage_records.meant(here, word)] if here is not None else []
    if here is not None and stages:
        if run_id is not None or isinstance(trouble, AmbiguousRunError):
            raise _ambiguous(word, run_id, here, stages)
        return here, word
    if isinstance(trouble, AmbiguousRunError):
        raise trouble
    if trouble is not None:
        raise _led_on(space, trouble, here, word)
    assert run_id is not None  # it was matched, or there is trouble
    return space.store.read(run_id, to_show=True), None


def current(space: Workspace, named: str | None = None) -> Run:
    """Read the run that is named, or the current one. Raises what `find.to_read` and reading it do."""
    return space.store.read(find.run_to_read(space, named), to_show=True)


def _matched(space: Workspace, word: str) -> tuple[str | None, LoomError | None]:
    try:
        return space.store.match(word), None
    except LoomError as error:
        return None, error


def _current(space: Workspace) -> Run | None:
    """Read the current run; None where there is none, or it cannot be read: another one may be meant."""
    try:
        return current(space)
    except (LoomError, OSError):
        return None


def _ambiguous(word: str, run_id: str | None, here: Run, stages: list[str]) -> LoomError:
    run = f"of the run {run_id}" if run_id else "of several runs"
    error = LoomError(
        "AMBIGUOUS_WORD",
        f"{word!r:.80} may mean a run or a stage",
        why=f"it is the beginning {run}, and means {', '.join(stages[:5])} of {here.run_id}",
        hint=shown(here.run_id),
        exit_code=EXIT_USAGE,
    )
    error.meant = {"run": here.run_id, "stage": word}
    return error


def _with_stage(space: Workspace, word: str) -> Run:
    """Read the current run, of which a stage is meant; a hint names of several runs one that has such a stage."""
    try:
        return current(space)
    except LoomError as error:
        having = _having(space, error.found, word) if isinstance(error, AmbiguousRunError) else None
        run_id = having or error.meant.get("run")
        if run_id is not None:
            error.hint, error.meant = shown(run_id), {"run": run_id, "stage": word}
        raise


def _having(space: Workspace, run_ids: Sequence[str], word: str) -> str | None:
    """Give the first of some runs that has a stage which a word means; one that cannot be read has none."""
    for run_id in run_ids:
        with suppress(LoomError, OSError):
            if stage_records.meant(space.store.read(run_id, to_show=True), word):
                return run_id
    return None


def _led_on(space: Workspace, error: LoomError, here: Run | None, word: str) -> LoomError:
    """Say of a word that names no run what it may have been meant for."""
    if error.code != "NO_SUCH_RUN":
        return error
    if here is not None:
        error.why = f"nor a stage of the current run, {here.run_id}"
        error.hint = f"loomctl stages {here.run_id}"
        return error
    having = _having(space, find.active_runs(space), word)
    if having is not None:
        error.why = "without a current run a stage is named behind its run"
        error.hint, error.meant = shown(having), {"run": having, "stage": word}
    return error
