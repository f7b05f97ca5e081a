"""The directive in a response, read loosely or held to the routing schema (D33 to D35, D37)."""

from __future__ import annotations

from loomctl.kit.ids import is_artifact_name
from loomctl.kit.quick_json import pointer
from loomctl.kit.records import NamedTuple
from loomctl.runs.model.run_context import is_reserved
from loomctl.runs.model.visits import OUTCOMES, SPELLINGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from loomctl.flow.outcomes.json_objects import Found

FIELDS = ("outcome", "failure_reason", "preferred_next_label", "suggested_next_ids", "context_updates")
_FIELDS = frozenset(FIELDS)
ARTIFACTS = "artifacts"  # read beside a field of FIELDS; alone it makes no directive
ROUTING = "routing"
ABSENT, FITS, UNFIT = "absent", "fits", "unfit"  # what a message holds of what its step is to answer with
WITHOUT_RESULT = ("failed", "skipped")  # outcomes that are given, and need no result to be believed (D36)
RESPONSE, STATUS_JSON, LAST_FILE = "response", "status.json", "last_file"
_UPDATES = '"context_updates"'
_QUOTES = (('"', '"'), ("'", "'"), ('\\"', '\\"'), ("“", "”"))
_OPENING = ('"', "'", "\\", "“", *FIELDS)
_BLANKS = " \t\n\r"
_LONGEST_KEY = 200  # characters of the first key of an object that does not parse
_SHOWN = 60
_TYPES = {str: "text", list: "a list", dict: "an object", int: "a number", float: "a number"}


class Source(NamedTuple):
    """One place that may hold a directive: RESPONSE, STATUS_JSON or LAST_FILE, and its text."""

    name: str
    text: str


class Fault(NamedTuple):
    """What is wrong. code: a stable upper-case word; where: a JSON Pointer into the object, "" for all of it."""

    code: str
    where: str
    message: str

    def to_dict(self) -> dict[str, str]:
        """Give it as `--json` prints it."""
        return {"code": self.code, "where": self.where, "message": self.message}


class Reading(NamedTuple):
    """What a response means. found: a source holds a directive (or an object for the step's schema), however bad.

    source: the one that does, or None; file: where that is a file, which, as people know it. outcome: a word of D32, or
    None to leave it; failure_reason: only with `failed`. artifacts: `{name: path}` to register. output: what a custom
    schema asked for. With errors nothing else is given: nothing is half obeyed.
    """

    found: bool = False
    source: str | None = None
    file: str | None = None
    outcome: str | None = None
    failure_reason: str | None = None
    preferred_next_label: str | None = None
    suggested_next_ids: Sequence[str] = ()
    context_updates: Mapping[str, Any] = {}
    artifacts: Mapping[str, str] = {}
    output: Any = None
    errors: Sequence[Fault] = ()
    warnings: Sequence[Fault] = ()

    def to_dict(self) -> dict[str, Any]:
        """Give the document of `loomctl debug outcome --json`, in which nobody looked for a file."""
        return {
            **{key: value for key, value in self._asdict().items() if key != "file"},
            "suggested_next_ids": list(self.suggested_next_ids),
            "context_updates": dict(self.context_updates),
            "artifacts": dict(self.artifacts),
            "errors": [one.to_dict() for one in self.errors],
            "warnings": [one.to_dict() for one in self.warnings],
        }


def read(sources: Sequence[Source], schema: str | None = None) -> Reading:
    """Read the directive of the first source that has one (D35).

    schema: None for loose reading (what is wrong is left out, with a warning), ROUTING to hold it to the types, every
    fault an error (D34). The last object with a recognised field at its top counts. JSON that does not parse, names
    such a field and ends behind that object is an error in ROUTING, a warning without. Raises nothing.
    """
    passed: list[Fault] = []
    for source in sources:
        found, broken = _scanned(source.text)
        fault = None if broken is None else _not_json(source.text, broken)
        if fault is not None and schema == ROUTING:
            return Reading(found=True, source=source.name, errors=[fault], warnings=passed)
        if fault is not None:
            passed.append(Fault("MALFORMED_DIRECTIVE", "", f"{source.name}: {fault.message}; Loom ignores it"))
        if found is not None:
            reading = _understood(found.value, source.name, strict=schema == ROUTING)
            return reading._replace(warnings=[*passed, *reading.warnings])
    if schema != ROUTING:
        return Reading(warnings=passed)
    names = ", ".join(source.name for source in sources) or "nothing"
    message = f"found no JSON object with a routing field ({', '.join(FIELDS)}) in {names}"
    return Reading(errors=[Fault("NO_DIRECTIVE", "", message)])


def of_object(raw: dict[str, Any]) -> Reading:
    """Read an object that is a directive, loosely: what is wrong is left out, with a warning."""
    return _understood(raw, RESPONSE, strict=False)


def last_object(text: str) -> tuple[dict[str, Any] | None, Fault | None]:
    """Give the final object of a response for a custom schema, or what is wrong with it (D35).

    A broken object counts as the final one where it holds or follows all that parse and begins with a key and its
    colon: an answer that was cut off or has a comma too many is not replaced by a draft before it or a part of it.
    """
    last: Found | None = None
    for found in _objects(text):
        last = found
    broken = [start for start, _ in _broken_behind(text, last) if _begins_with_key(text, start)]
    if broken:
        return None, _not_json(text, broken[0])
    if last is None:
        return None, Fault("NO_OBJECT", "", "the result has no JSON object")
    return mended(last.value), None


def mended(value: Any) -> Any:
    """Replace halves of characters, which no file can hold, by the sign for what cannot be read."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {mended(key): mended(item) for key, item in value.items()}
    return [mended(item) for item in value] if isinstance(value, list) else value


# ---- Which object counts.


def _objects(text: str) -> Iterable[Found]:
    if "{" not in text:  # as most messages have it: then a hook pays for no pattern and no decoder
        return ()
    from loomctl.flow.outcomes import json_objects

    return json_objects.objects(text)


def _broken(text: str) -> Sequence[tuple[int, int]]:
    if "{" not in text:
        return ()
    from loomctl.flow.outcomes import json_objects

    return json_objects.broken(text)


def _scanned(text: str) -> tuple[Found | None, int | None]:
    """Give the object that counts, and where a broken one begins that should have counted instead.

    The first is the last object with a recognised field at its top, context updates of a broken one left out.
    """
    named = _named(text)
    bare: list[int] = []  # where a field is named outside of all that parse
    at, last = 0, None
    for one in _objects(text):
        while at < len(named) and named[at] < one.end:
            if named[at] < one.start:
                bare.append(named[at])
            at += 1
        if _counts(text, one):
            last = one
    bare += named[at:]
    if last is not None and any(at < last.start and text.startswith(_UPDATES, at) for at in bare):
        last = _last_outside(text)
    if last is None:  # a key without its quotes means JSON only where there is a directive besides
        bare = [at for at in bare if not text[at].isalpha()]
    return last, _broken_with(text, bare, last) if bare else None


def _counts(text: str, one: Found) -> bool:
    return not _FIELDS.isdisjoint(one.value) and not _is_updates(text, one.start)


def _last_outside(text: str) -> Found | None:
    spans = iter([(start, end) for start, end in _broken(text) if end >= 0 and _is_updates(text, start)])
    span, reach, last = next(spans, None), -1, None
    for one in _objects(text):
        if _counts(text, one):
            while span is not None and span[0] < one.start:
                reach, span = max(reach, span[1]), next(spans, None)
            last = one if one.start >= reach else last
    return last


def _is_updates(text: str, start: int) -> bool:
    at = _before_blanks(text, start)
    if text[at - 1 : at] != ":":
        return False
    return text.endswith(_UPDATES, 0, _before_blanks(text, at - 1))


def _before_blanks(text: str, at: int) -> int:
    while at > 0 and text[at - 1] in _BLANKS:
        at -= 1
    return at


def _broken_with(text: str, places: list[int], last: Found | None) -> int | None:
    """Give the last broken brace that has one of the places (in order) in it: the outermost one there."""
    at, found, reach = 0, None, -1
    for start, end in _broken_behind(text, last):
        while at < len(places) and places[at] < start:
            at += 1
        if at == len(places):
            break
        # One that is never closed was cut off, or is a brace in the prose.
        within = places[at] < end if end >= 0 else text.startswith(_OPENING, _past_blanks(text, start + 1))
        if within and start >= reach:
            found, reach = start, end
    return found


def _broken_behind(text: str, last: Found | None) -> Iterator[tuple[int, int]]:
    is_part = last is not None and _is_part(text, last.start)
    for start, end in _broken(text):
        if last is None or start >= last.end or (end >= last.end if end >= 0 else is_part):
            yield start, end


def _is_part(text: str, start: int) -> bool:
    at = _before_blanks(text, start)
    if text[at - 1 : at] == ":":
        return text.endswith(('"', "'", "”"), 0, _before_blanks(text, at - 1))
    return text[at - 1 : at] in ("[", ",")


def _begins_with_key(text: str, start: int) -> bool:
    """Tell whether a brace is followed by a key in quotes of whatever kind, and its colon: then somebody meant JSON."""
    at = _past_blanks(text, start + 1)
    for opening, closing in _QUOTES:
        if text.startswith(opening, at):
            at += len(opening)
            key, closed, _ = text[at : at + _LONGEST_KEY].partition(closing)
            return bool(closed) and text.startswith(":", _past_blanks(text, at + len(key + closed)))
    return False


def _past_blanks(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _BLANKS:
        at += 1
    return at


def _named(text: str) -> list[int]:
    return sorted(
        begins for field in FIELDS for at in _places(text, field) for begins in _beginnings(text, at, at + len(field))
    )


def _beginnings(text: str, at: int, end: int) -> Iterator[int]:
    for opening, closing in _QUOTES:
        if text.endswith(opening, 0, at) and text.startswith(closing, end):
            yield at - len(opening)
    before = _before_blanks(text, at)
    opens = text[before - 1 : before] in ("{", ",") or "\n" in text[before:at]
    if opens and text.startswith(":", _past_blanks(text, end)):
        yield at


def _places(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


def _not_json(text: str, start: int) -> Fault:
    from loomctl.flow.outcomes import json_objects

    at, why = json_objects.read(text, start)[:2]
    line, column = text.count("\n", 0, int(at)) + 1, int(at) - text.rfind("\n", 0, int(at))
    return Fault("MALFORMED_JSON", "", f"the JSON is invalid: {why} (line {line}, column {column})")


# ---- What it says.


def _understood(raw: dict[str, Any], source: str, *, strict: bool) -> Reading:
    wrong: list[Fault] = []
    notes: list[Fault] = []
    raw = {field: mended(raw[field]) for field in (*FIELDS, ARTIFACTS) if field in raw}
    outcome = _text(raw, "outcome", wrong)
    word = SPELLINGS.get(outcome, outcome) if outcome is not None else None
    if word is not None and word not in OUTCOMES:
        message = f"unknown outcome {_shown(outcome)} (expected {', '.join(OUTCOMES)})"
        wrong.append(Fault("UNKNOWN_OUTCOME", "/outcome", message))
        word = None
    reason = _text(raw, "failure_reason", wrong)
    if reason is not None and word != "failed":
        if reason.strip():
            notes.append(Fault("REASON_UNUSED", "/failure_reason", "failure_reason counts only with outcome failed"))
        reason = None
    label = _text(raw, "preferred_next_label", wrong)
    updates = _updates(raw, wrong)
    ids, artifacts = _ids(raw, wrong), _artifacts(raw, wrong)
    if strict and wrong:
        return Reading(found=True, source=source, errors=wrong, warnings=notes)
    return Reading(
        found=True,
        source=source,
        outcome=word,
        failure_reason=reason if reason and reason.strip() else None,
        preferred_next_label=label if label and label.strip() else None,
        suggested_next_ids=ids,
        context_updates=updates,
        artifacts=artifacts,
        warnings=[*wrong, *notes],
    )


def _text(raw: dict[str, Any], field: str, wrong: list[Fault]) -> str | None:
    value = raw.get(field)
    if isinstance(value, str) or field not in raw:
        return value
    wrong.append(_wrong(field, "text", value))
    return None


def _ids(raw: dict[str, Any], wrong: list[Fault]) -> list[str]:
    value = raw.get("suggested_next_ids", [])
    if not isinstance(value, list):
        wrong.append(_wrong("suggested_next_ids", "a list of step ids", value))
        return []
    odd = [(at, one) for at, one in enumerate(value) if not isinstance(one, str)]
    for at, one in odd[:1]:
        wrong.append(_wrong("suggested_next_ids", "a step id as text", one, at))
    return [] if odd else value


def _updates(raw: dict[str, Any], wrong: list[Fault]) -> dict[str, Any]:
    value = raw.get("context_updates", {})
    if not isinstance(value, dict):
        wrong.append(_wrong("context_updates", "an object", value))
        return {}
    for key in value:
        if is_reserved(key):
            message = f"Loom itself writes the key {_shown(key)}; choose another"
            wrong.append(Fault("RESERVED_KEY", pointer("context_updates", key[:_SHOWN]), message))
    return {key: item for key, item in value.items() if not is_reserved(key)}


def _artifacts(raw: dict[str, Any], wrong: list[Fault]) -> dict[str, str]:
    value = raw.get(ARTIFACTS, {})
    if not isinstance(value, dict):
        wrong.append(_wrong(ARTIFACTS, "an object of names and paths", value))
        return {}
    found = {name: path for name, path in value.items() if is_artifact_name(name) and isinstance(path, str) and path}
    for name in [name for name in value if name not in found][:1]:
        message = f"{_shown(name)}: expected a name such as spec_path and a file's path"
        wrong.append(Fault("BAD_ARTIFACT", pointer(ARTIFACTS, name[:_SHOWN]), message))
    return found


def _wrong(field: str, expected: str, value: object, *more: int) -> Fault:
    return Fault("WRONG_TYPE", pointer(field, *more), f"{field}: expected {expected}, got {_kind_of(value)}")


def _kind_of(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _TYPES[type(value)]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 2] + "…" + text[-1]
