"""What a step has to show before it counts as done, and how that is read: files, commands, values of the state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loomctl.expressions.conditions import compile_condition
from loomctl.expressions.placeholder_checks import placeholder_problems
from loomctl.expressions.state_paths import compile_path
from loomctl.kit.json.fields import Fields, only
from loomctl.kit.problems import at, error, kind_of, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from loomctl.kit.problems import Problem

KEY = "evidence"
FILE, COMMAND, STATE = "file", "command", "state"
MOST = 20  # of one step
LONGEST_TIMEOUT = 24 * 3600  # seconds
_SOURCES = ("file", "run", "state", "condition")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One thing that a step has to show. One of file, run, state and condition is given.

    file: a path or a pattern (`*`, `?`, `[…]`, `**`); changed: whether it has to have changed since the step began, the
    default. run: a shell command that has to end with 0 (D23); timeout: its seconds. state: a JSONPath into the state
    that has to find something other than null and false; condition: JavaScript that has to be true (D12).
    """

    file: str | None = None
    changed: bool | None = None
    run: str | None = None
    timeout: float | None = None
    state: str | None = None
    condition: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    KEYS = ("file", "changed", "run", "timeout", "state", "condition")

    def to_dict(self) -> dict[str, Any]:
        """Give it as a workflow file writes it."""
        return only(self.KEYS, {key: getattr(self, key) for key in self.KEYS}, self.extra)

    def frozen(self) -> dict[str, Any]:
        """Give it as a plan holds it: its kind said, what is simple compiled (D12)."""
        if self.file is not None:
            return {"kind": FILE, "file": self.file, "changed": self.changed is not False}
        if self.run is not None:
            return {"kind": COMMAND, "run": self.run, **({} if self.timeout is None else {"timeout": self.timeout})}
        if self.state is not None:
            return {"kind": STATE, "state": self.state, "path_steps": compile_path(self.state)}
        condition = self.condition or ""
        return {"kind": STATE, "condition": condition, "condition_code": compile_condition(condition)}


def read_all(fields: Fields, problems: list[Problem]) -> tuple[Evidence, ...] | None:
    """Read what a step has to show; None where it says nothing of it."""
    entries = fields.items(KEY)
    if entries is None:
        return None
    if len(entries) > MOST:
        fields.fail("OUT_OF_RANGE", KEY, f"{len(entries)} pieces of evidence; {MOST} are checked at most")
    found = (_read(raw, where, problems) for where, raw in entries[:MOST])
    return tuple(one for one in found if one is not None)


def _read(raw: object, where: str, problems: list[Problem]) -> Evidence | None:
    if isinstance(raw, str):
        raw = {"file": raw}
    if not isinstance(raw, dict):
        message = f"expected a path or an object, got {kind_of(raw)}"
        problems.append(error("WRONG_TYPE", where, message, '"dist/report.html", or {"run": "pytest -q"}'))
        return None
    fields = Fields(raw, where, problems)
    given = [key for key in _SOURCES if fields.has(key)]
    if len(given) != 1:
        said = f"{' and '.join(given)} are given" if given else "none of them is given"
        message = f"one of {', '.join(_SOURCES)} says what is to be shown; {said}"
        problems.append(error("ONE_EVIDENCE", where, message, '{"file": "dist/report.html"}'))
    file, run = fields.text("file"), fields.text("run")
    found = Evidence(
        file=file if file is None or _is_pattern(fields, file) else None,
        changed=fields.flag("changed"),
        run=run,
        timeout=fields.seconds("timeout", most=LONGEST_TIMEOUT),
        state=fields.text("state"),
        condition=fields.text("condition"),
        extra=fields.rest(),
    )
    for key, text in (("file", file), ("run", run)):
        problems += placeholder_problems(text, fields.path(key))
    for key, of in (("changed", "file"), ("timeout", "run")):
        if fields.has(key) and not fields.has(of):
            fields.warn("IGNORED_FIELD", key, f"kept, but only evidence with {of} has {key}")
    return found


def _is_pattern(fields: Fields, text: str) -> bool:
    parts = text.replace("\\", "/").split("/")
    if ".." in parts:
        fields.fail("PATH_ESCAPE", "file", f"{shown(text)} leads out of the project", "name a file below it")
    elif "\0" in text or any("**" in part and part != "**" for part in parts):
        fields.fail("BAD_GLOB", "file", f"{shown(text)} is no pattern: ** stands alone between slashes", "dist/**/*.js")
    else:
        return True
    return False


def declared(raw: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Give every object among the evidence of a workflow as it was read, with its JSON path."""
    phases = raw.get("phases") if isinstance(raw, dict) else None
    for name, phase in phases.items() if isinstance(phases, dict) else ():
        for part in ("pre_steps", "steps", "post_steps"):
            for where, step in _objects(phase, part, at("$", "phases", name)):
                yield from _objects(step, KEY, where)
                for place, branch in _objects(step.get("parallel"), "branches", at(where, "parallel")):
                    for inner, one in _objects(branch, "steps", place):
                        yield from _objects(one, KEY, inner)


def _objects(holder: object, key: str, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    listed = holder.get(key) if isinstance(holder, dict) else None
    for index, entry in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(entry, dict):
            yield at(where, key, index), entry
