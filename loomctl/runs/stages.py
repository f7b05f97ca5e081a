"""The files of a stage: what the step was told, what it answered, how it ended."""

from __future__ import annotations

import os

from loomctl.kit import clock, files, ids, trouble
from loomctl.kit.errors import EXIT_NO_RUN, EXIT_USAGE, LoomError
from loomctl.kit.ids import checked_id
from loomctl.kit.records import NamedTuple
from loomctl.runs import find
from loomctl.runs.model import visits
from loomctl.runs.store.layouts import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

PROMPT, RESPONSE, CANDIDATE, STATUS = "prompt.md", "response.md", "candidate.md", "status.json"
CHANGED = ("changes.json", "changes.patch")
REPAIRED, ASKED = "response.repair-", "repair-"


def folder(run_dir: str, stage: str) -> str:
    """Give a stage's folder; its name comes from a file, so it is checked (D10). Raises BAD_ID or UNSAFE_LINK."""
    checked_id(stage.replace("@", "."), what="stage")
    found = os.path.join(run_dir, "stages", stage)
    files.refuse_links(run_dir, found)
    return found


def write_prompt(run_dir: str, stage: str, prompt: str) -> dict[str, str]:
    """Write what the step is told; gives its hash by its name, for the log."""
    _write(run_dir, stage, PROMPT, prompt)
    return {PROMPT: sha256_of(prompt)}


def write_candidate(run_dir: str, stage: str, message: str) -> None:
    """Keep a message that may turn out to be the step's response (D27)."""
    _write(run_dir, stage, CANDIDATE, message)


def write_response(run_dir: str, stage: str, response: str) -> None:
    """Write what a step answered."""
    _write(run_dir, stage, RESPONSE, response)


def sha256_of(response: str) -> str:
    """Give the SHA-256 of an answer as its file holds it."""
    from loomctl.kit import digests  # a hook that ends no stage hashes none

    return digests.of_bytes(_encoded(response))


def sha256_of_json(document: Mapping[str, Any]) -> str:
    """Give the SHA-256 of what a JSON file of a stage says, but for whose run it is: a copy has a name of its own."""
    return files.sha256_of_json(document, ("run_id",))


def write_status(run_dir: str, stage: str, status: Mapping[str, Any]) -> dict[str, str]:
    """Write how a stage ended, before the state says so; gives its hash by its name."""
    where = folder(run_dir, stage)
    files.make_folder(where, mode=0o755)
    files.write_atomically(os.path.join(where, STATUS), files.to_json(dict(status)))
    return {STATUS: sha256_of_json(status)}


def write_repaired(
    run_dir: str, stage: str, attempt: int, *, response: str, asked: str, errors: Sequence[Mapping[str, str]]
) -> None:
    """Keep an answer that had to be repaired, what was wrong with it, and the message that asked for another.

    attempt: which repair it led to, from 1 (D36).
    """
    _write(run_dir, stage, f"{REPAIRED}{attempt}.md", response)
    _write(run_dir, stage, f"{ASKED}{attempt}.json", files.to_json(list(errors)).decode())
    _write(run_dir, stage, f"{ASKED}{attempt}.md", asked)


def repair_errors(run_dir: str, stage: str, repairs: int) -> list[list[Any]]:
    """Give what was wrong with each answer that had to be repaired; nothing of one whose file cannot be read."""
    found = []
    for attempt in range(1, repairs + 1):
        name = f"{ASKED}{attempt}.json"
        try:
            held = files.parse_json((read_text(run_dir, stage, name) or "[]").encode(), where=name)
        except LoomError:
            held = []
        found.append(held if isinstance(held, list) else [])
    return found


def set_aside(run_dir: str, stage: str) -> None:
    """Keep what an earlier visit of this name left under names of its own; nothing is thrown away (D31)."""
    from loomctl.runs import command_runs

    where = folder(run_dir, stage)
    for name in (RESPONSE, STATUS, CANDIDATE, command_runs.LOG, command_runs.RECORD, *CHANGED, *_repaired(where)):
        path = os.path.join(where, name)
        if not os.path.exists(path):
            continue
        base, ending = os.path.splitext(path)
        number = 1
        while os.path.exists(f"{base}.undone-{number}{ending}"):
            number += 1
        os.replace(path, f"{base}.undone-{number}{ending}")


def aside(run_dir: str, stage: str, name: str) -> list[str]:
    """Name the files of a name that were set aside, the newest first."""
    base, ending = os.path.splitext(name)
    try:
        names = os.listdir(folder(run_dir, stage))
    except OSError:
        return []
    numbers = [one[len(base) + len(".undone-") : -len(ending)] for one in names if one.startswith(f"{base}.undone-")]
    return [
        f"{base}.undone-{number}{ending}" for number in sorted(map(int, filter(str.isdigit, numbers)), reverse=True)
    ]


def _repaired(where: str) -> list[str]:
    try:
        names = os.listdir(where)
    except OSError:
        return []
    return sorted(name for name in names if _attempt(name))


def _attempt(name: str) -> str:
    beginning = REPAIRED if name.startswith(REPAIRED) else ASKED
    base, ending = os.path.splitext(name)
    number = base[len(beginning) :] if base.startswith(beginning) and ending in (".md", ".json") else ""
    return number if number.isascii() and number.isdigit() and len(number) < 10 else ""


def names(run_dir: str, stage: str) -> list[str]:
    """List the plain files of a stage: prompt, answers and what was asked for in their order, then the rest by name."""
    try:
        with os.scandir(folder(run_dir, stage)) as entries:
            found = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    from loomctl.runs import command_runs

    return sorted((name for name in found if not name.endswith(".tmp") and name != command_runs.LOCK), key=_order)


def _order(name: str) -> tuple[int, int, str]:
    if attempt := _attempt(name):  # the answer, what was asked then, what was wrong
        return 1, int(attempt), f"{not name.startswith(REPAIRED)}{name.endswith('.json')}"
    first = (PROMPT, REPAIRED, RESPONSE, CANDIDATE, STATUS)
    at = next((place for place, beginning in enumerate(first) if name.startswith(beginning)), len(first))
    number = name.rpartition("-")[2].partition(".")[0]
    return at, int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0, name


def read_text(run_dir: str, stage: str, name: str) -> str | None:
    """Read one of a stage's texts; None if it is not there."""
    path = os.path.join(folder(run_dir, stage), name)
    files.refuse_links(run_dir, path)
    try:
        return files.read_bytes(path).decode("utf-8", "replace")
    except OSError:
        return None


def _write(run_dir: str, stage: str, name: str, text: str) -> None:
    where = folder(run_dir, stage)
    files.make_folder(where, mode=0o755)
    files.write_atomically(os.path.join(where, name), _encoded(text))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


# ---- What the state and the files of a stage tell of it.


_OVER = ("completed", "cancelled")


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
    path = os.path.join(folder(run.folder, str(entry["stage"])), STATUS)
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
        return Record(entry, {}, LoomError("BAD_STATUS_FILE", "the status is not a JSON object", where=path, hint=hint))
    if entry["status"] in visits.OPEN:  # of a visit of the same name that was undone
        held = {}
    return Record(entry, held, None)


def read_status(run: Run, entry: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Read how a stage ended; gives what can be read and what is wrong with it."""
    try:
        text = read_text(run.folder, str(entry["stage"]), STATUS)
        if text is None:
            return {}, "status.json is missing"
        found = files.parse_json(text.encode(), where=STATUS)
    except (OSError, LoomError) as error:
        return {}, f"status.json: {trouble.said(error)}"
    return (found, "") if isinstance(found, dict) else ({}, "status.json is not a JSON object")


def find_stage(run: Run, named: str) -> dict[str, Any]:
    """Give the visit of the stage that is meant: its rank, its name or its beginning, a step's id, or `step@visit`.

    A step, by its `phase/id` or by its id alone where one phase or one branch has it, means its last visit. Raises
    NO_SUCH_STAGE, which lists what there is.
    """
    found = matches(run, named)
    if len(found) == 1:
        return found[0]
    known = ", ".join(entry["stage"] for entry in (found or entries(run))[-20:])
    what = f"there is no step {named!r:.80} in this run"
    why = f"its steps are {known}" if known else "no step has begun"
    if found:
        what, why = f"{named!r:.80} may mean {len(found)} steps of this run", f"they are {known}"
    raise LoomError("NO_SUCH_STAGE", what, why=why, hint=f"loomctl show --stages {run.handle}", exit_code=EXIT_NO_RUN)


def matches(run: Run, named: str) -> list[dict[str, Any]]:
    """Give the visits of all stages that a word may mean; as `find_stage`, but raising nothing."""
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


def progress(run: Run) -> list[dict[str, Any]]:
    """Give the plan's phases, each `{id, status, done, steps}`; status: `done`, `open`, `skipped` or `pending`."""
    last = visits.last_of_each(run.state)
    current = run.state.get("current_phase")
    found = []
    for phase in run.plan["phases"]:
        steps = [step for step in phase["steps"] if not step.get("engine")]
        done = sum(visits.is_done(last.get(step["key"])) for step in steps)
        known = run.state["phases"].get(phase["id"])
        said = known.get("status") if isinstance(known, dict) else None
        status = {"completed": "done", "skipped": "skipped"}.get(str(said), "pending")
        if phase["id"] == current and run.state["status"] not in _OVER:
            status = "open"
        found.append({"id": str(phase["id"]), "status": status, "done": done, "steps": len(steps)})
    return found


class Meant(NamedTuple):
    """A run that is to be shown, and the word for its stage, if one is meant. is_last: as `find.to_show` has it."""

    run: Run
    stage: str | None
    is_last: bool = False


def find_with_run(space: Workspace, word: str | None, stage: str | None) -> Meant:
    """Give the run to show, and the word for its stage, if one is meant.

    word: a run, or the only word: then also a stage of the current run (D1), as `find_stage` knows it. Raises what
    finding and reading a run do, and AMBIGUOUS_WORD.
    """
    if word is None or stage is not None:
        return _shown(space, word, stage)
    if "@" in word:  # no run's id has that
        return _with_stage(space, word)
    from loomctl.runs.store.match import AmbiguousRunError, match  # no hook is asked for a run by a word

    run_id: str | None = None
    trouble: LoomError | None = None
    try:
        run_id = match(space.store, word)
    except LoomError as error:
        trouble = error
    if run_id == word:
        return Meant(space.store.read(run_id, to_show=True), None)
    is_run = run_id is not None or isinstance(trouble, AmbiguousRunError)
    current = _current(space, under_way=is_run)  # a run that is over comes behind the one that was named
    stages = [entry["stage"] for entry in matches(current.run, word)] if current is not None else []
    if current is not None and stages:
        if is_run:
            raise _ambiguous(word, space.store.handle(run_id) if run_id is not None else None, current.run, stages)
        return current._replace(stage=word)
    if trouble is not None:
        raise _led_on(space, trouble, current.run if current is not None else None, word)
    assert run_id is not None  # it was matched, or there is trouble
    return Meant(space.store.read(run_id, to_show=True), None)


def read_current(space: Workspace, named: str | None = None) -> Run:
    """Read the run that is named, or the current one. Raises what `find.to_read` and reading it do."""
    return space.store.read(find.run_to_read(space, named), to_show=True)


def _shown(space: Workspace, named: str | None = None, stage: str | None = None) -> Meant:
    found = find.to_show(space, named)
    return Meant(space.store.read(str(found.run_id), to_show=True), stage, is_last=found.how == "last")


def _current(space: Workspace, *, under_way: bool) -> Meant | None:
    try:
        return Meant(read_current(space), None) if under_way else _shown(space)
    except (LoomError, OSError):
        return None


def _ambiguous(word: str, handle: str | None, here: Run, stages: list[str]) -> LoomError:
    run = f"the run {handle}" if handle else "several runs"
    what = f"{word!r:.80} may mean a run or a step"
    why = f"it begins the name of {run}, and it means {', '.join(stages[:5])} of {here.handle}"
    error = LoomError("AMBIGUOUS_WORD", what, why=why, hint=shown(here.handle), exit_code=EXIT_USAGE)
    error.meant = {"run": here.handle, "stage": word}
    return error


def _with_stage(space: Workspace, word: str) -> Meant:
    """Read the current run, of which a stage is meant; a hint names of several runs one that has such a stage."""
    try:
        return _shown(space, stage=word)
    except LoomError as error:
        from loomctl.runs.store.match import AmbiguousRunError

        having = _having(space, error.found, word) if isinstance(error, AmbiguousRunError) else None
        called = space.store.handle(having) if having is not None else error.meant.get("run")
        if called is not None:
            error.hint, error.meant = shown(called), {"run": called, "stage": word}
        raise


def _having(space: Workspace, run_ids: Sequence[str], word: str) -> str | None:
    for run_id in run_ids:
        try:
            if matches(space.store.read(run_id, to_show=True), word):
                return run_id
        except (LoomError, OSError):
            continue
    return None


def _led_on(space: Workspace, error: LoomError, here: Run | None, word: str) -> LoomError:
    if error.code != "NO_SUCH_RUN":
        return error
    if here is not None and error.meant:  # the word is near to a run's name
        return error
    if here is not None:
        error.why = f"nor a step of the current run, {here.handle}"
        error.hint = f"loomctl show --stages {here.handle}"
        return error
    having = _having(space, find.active_runs(space), word)
    if having is not None:
        called = space.store.handle(having)
        error.why = "there is no current run, so name the run before the step"
        error.hint, error.meant = shown(called), {"run": called, "stage": word}
    return error
