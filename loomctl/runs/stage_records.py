"""What is on record of a run's stages, in the state and in each `status.json`; and which stage is meant by a word."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit import clock, files, ids
from loomctl.kit.errors import EXIT_NO_RUN, LoomError
from loomctl.runs import stages
from loomctl.runs.model import visits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loomctl.runs.store.store import Run


class Record(NamedTuple):
    """A stage. entry: its visit in the state; status: what `status.json` says, empty where there is none.

    trouble: what keeps `status.json` from being read, else None.
    """

    entry: Mapping[str, Any]
    status: Mapping[str, Any]
    trouble: LoomError | None

    @property
    def stage(self) -> str:
        """The stage's name."""
        return str(self.entry["stage"])

    def of(self, key: str) -> Any:
        """Give what the state says under a key, else what `status.json` does."""
        value = self.entry.get(key)
        return self.status.get(key) if value is None else value

    def section(self, key: str) -> Mapping[str, Any]:
        """Give an object of `status.json`, empty where there is none."""
        value = self.status.get(key)
        return value if isinstance(value, dict) else {}

    def items(self, key: str) -> list[Any]:
        """Give a list of `status.json`, empty where there is none."""
        value = self.status.get(key)
        return value if isinstance(value, list) else []

    @property
    def seconds(self) -> int | None:
        """How long it took; None while it is open, and where the times are none."""
        begun, ended = (clock.seconds_of(str(self.entry.get(key) or "")) for key in ("started_at", "completed_at"))
        return max(0, ended - begun) if begun and ended else None

    @property
    def reason(self) -> str:
        """Why it failed, else the note that it was ended with."""
        return next((text for key in ("failure_reason", "note") if (text := _text(self.of(key)))), "")

    @property
    def files_touched(self) -> int:
        """How many files it touched."""
        return len(self.items("files_touched"))

    @property
    def repairs(self) -> int:
        """How often its answer had to be repaired."""
        return self.status["repairs"] if type(self.status.get("repairs")) is int else visits.repairs_of(self.entry)

    @property
    def models(self) -> list[str]:
        """The models that worked on it, where they are known."""
        held = self.section("usage").get("models")
        return [one for one in held if isinstance(one, str)] if isinstance(held, list) else []

    @property
    def tokens(self) -> tuple[int, int] | None:
        """The tokens that went in, without those that were read from a cache, and those that came out."""
        usage = self.section("usage")
        if not usage:
            return None
        into = ("input_tokens", "cache_creation_input_tokens")
        counts = [usage.get(key) for key in (*into, "output_tokens")]
        numbers = [count if type(count) is int else 0 for count in counts]
        return sum(numbers[:-1]), numbers[-1]

    @property
    def command(self) -> str:
        """How a command step's command ended, in words; empty for other steps."""
        told = self.section("command")
        if not told:
            return ""
        if told.get("timed_out"):
            return "timed out"
        code = told.get("exit_code")
        if type(code) is int:
            return f"exit code {code}"
        signal = told.get("signal")
        return f"killed by {signal}" if isinstance(signal, str) else "killed"


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def entries(run: Run) -> list[dict[str, Any]]:
    """List the visits that have a stage, in the order in which they began; what the engine did itself has none.

    Those of branches stand behind their parallel step's (D43).
    """
    return [entry for entry in visits.every(run.state) if isinstance(entry.get("stage"), str)]


def of_run(run: Run, last: int | None = None) -> list[Record]:
    """Give the record of each stage, or of so many, the newest. Raises BAD_ID and UNSAFE_LINK."""
    return [of_visit(run, entry) for entry in entries(run)[-(last or 0) :]]


def of_visit(run: Run, entry: Mapping[str, Any]) -> Record:
    """Give the record of a visit. Raises BAD_ID and UNSAFE_LINK."""
    path = os.path.join(stages.folder(run.folder, str(entry["stage"])), stages.STATUS)
    files.refuse_links(run.folder, path)
    try:
        held = files.read_json(path)
    except FileNotFoundError:
        return Record(entry, {}, None)
    except LoomError as error:
        return Record(entry, {}, error)
    except OSError as error:
        why, hint = error.strerror or str(error), "loomctl doctor"
        return Record(entry, {}, LoomError("UNREADABLE", "the status cannot be read", where=path, why=why, hint=hint))
    if not isinstance(held, dict):
        hint = "loomctl doctor"
        return Record(entry, {}, LoomError("BAD_STATUS_FILE", "the status is no object", where=path, hint=hint))
    if entry["status"] in visits.OPEN:  # of a visit of the same name that was undone
        held = {}
    return Record(entry, held, None)


def find(run: Run, named: str) -> dict[str, Any]:
    """Give the visit of the stage that is meant: its rank, its name or its beginning, a step's id, or `step@visit`.

    A step, by its `phase/id` or by its id alone where one phase or one branch has it, means its last visit. Raises
    NO_SUCH_STAGE, which lists what there is.
    """
    found = meant(run, named)
    if len(found) == 1:
        return found[0]
    known = ", ".join(entry["stage"] for entry in (found or entries(run))[-20:])
    raise LoomError(
        "NO_SUCH_STAGE",
        f"{named!r:.80} names {len(found)} stages of this run",
        why=f"there are {known or 'none'}",
        hint=f"loomctl stages {run.run_id}",
        exit_code=EXIT_NO_RUN,
    )


def meant(run: Run, named: str) -> list[dict[str, Any]]:
    """Give the visits of all stages that a word may mean; as `find`, but raising nothing."""
    every = entries(run)
    exact = [entry for entry in every if entry["stage"] == named]
    found = exact or _by_rank(every, named) or _by_step(every, named, _own_ids(run))
    return found or [entry for entry in every if named and entry["stage"].startswith(named)]


def _by_rank(every: list[dict[str, Any]], named: str) -> list[dict[str, Any]]:
    if not (named.isascii() and named.isdigit() and len(named) < 10):
        return []
    return [entry for entry in every if entry.get("rank") == int(named)]


def _own_ids(run: Run) -> dict[str, str]:
    """Give the ids that the steps of branches have in their branches, by stage (D43)."""
    return {
        visit["stage"]: str(visit["step_id"]).removeprefix(f"{outer['step_id']}.{record['id']}.")
        for outer in run.state["steps"]
        for record in outer.get("branches", ())
        for visit in record["steps"]
    }


def _by_step(every: list[dict[str, Any]], named: str, own: Mapping[str, str]) -> list[dict[str, Any]]:
    """Give the visit of a step: of each step that is meant the last one, or the one of the number after the `@`."""
    step, at, number = named.rpartition("@")
    step = step if at else named
    if at and not (number.isascii() and number.isdigit()):
        return []
    mine = [entry for entry in every if step in _names(str(entry["step_id"])) or step == own.get(entry["stage"])]
    if at:
        return [entry for entry in mine if str(entry.get("visit")) == number.lstrip("0")]
    return list({entry["step_id"]: entry for entry in mine}.values())


def _names(step_id: str) -> tuple[str, ...]:
    return step_id, ids.step_slug(step_id), step_id.rpartition("/")[2]
