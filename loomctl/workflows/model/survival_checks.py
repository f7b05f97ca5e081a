"""Whether `must_survive` says what can be looked for: read from a workflow, with everything that is wrong with it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from loomctl.expressions.state_paths import compile_path
from loomctl.kit.problems import at, choices, error, kind_of, nearest, shown, warning
from loomctl.kit.text.secrets import mask
from loomctl.workflows.model.survival import ARTIFACT, KEY, KINDS, LONGEST, MOST, PATH, is_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from loomctl.kit.json.fields import Fields
    from loomctl.kit.problems import Problem

# What a hook can read without a library; the schema's pattern says the same.
_STEP = r"\.[A-Za-z_][A-Za-z0-9_-]*|\[-?(0|[1-9][0-9]{0,8})\]|\['[^'\\]+'\]|\[\"[^\"\\]+\"\]"
_PATH = re.compile(rf"\$({_STEP})+")
# A word that is made of words, as ids are; and how near an id a text is that may mean it.
_ID = re.compile(r"[a-z0-9]+([-_][a-z0-9]+)+")
_NEAR, _NEAR_WORD = 0.82, 0.72
# A plain word, and how long one is that may be the beginning of an id.
_SHORTEST = 3
_WORD = re.compile(rf"[A-Za-z]{{{_SHORTEST},80}}")
_FORMS = 'write a text, "$.path.into.state", an artifact\'s id, or {"text": …}, {"path": …}, {"artifact": …}'


def read_declared(fields: Fields, problems: list[Problem]) -> tuple[str | dict[str, Any], ...] | None:
    """Take `must_survive` from a workflow as it stands there; what is wrong with an entry is reported."""
    entries = fields.items(KEY)
    if entries is None:
        return None
    if len(entries) > MOST:
        fields.fail("TOO_MANY", KEY, f"{len(entries)} items, and at most {MOST} are looked for", "name an artifact")
    for where, entry in entries:
        problems += entry_problems(entry, where)
    return tuple(entry for _, entry in entries if isinstance(entry, (str, dict)))


def entry_problems(entry: object, where: str) -> list[Problem]:
    """Find what is wrong with one item, whatever the plan declares."""
    if isinstance(entry, str):
        return list(_value_problems(entry, PATH if is_path(entry) else "", where))
    if not isinstance(entry, dict):
        return [error("WRONG_TYPE", where, f"expected text or an object, got {kind_of(entry)}", _FORMS)]
    said = [kind for kind in KINDS if kind in entry]
    if len(said) != 1:
        return [error("BAD_ITEM", where, f"an item says one of {', '.join(KINDS)}", _FORMS)]
    value, place = entry[said[0]], at(where, said[0])
    if not isinstance(value, str):
        return [error("WRONG_TYPE", place, f"{said[0]}: expected text, got {kind_of(value)}", _FORMS)]
    return list(_value_problems(value, said[0], place))


def _value_problems(value: str, kind: str, where: str) -> Iterator[Problem]:
    if not value.strip():
        yield error("EMPTY_TEXT", where, "an empty item stands in every text", "leave it out")
    elif len(value) > LONGEST:
        hint = "put it into a file, declare that as an artifact, and name the artifact here"
        yield error("TOO_LONG", where, f"{len(value):,} characters, and an item has at most {LONGEST:,}", hint)
    elif kind == PATH and not (_PATH.fullmatch(value) and compile_path(value) is not None):
        hint = 'names and places alone, such as $.goal or $.context["release.date"]; {"text": …} for a text like that'
        yield error("PATH_SYNTAX", where, f"{shown(value)} is no path that a hook can read", hint)
    elif mask(value)[1]:
        message = (
            "this looks like a secret: it is given masked, and is written down as it is, for all who read that file"
        )
        yield warning("SECRET", where, message, "name what must survive without it")


def everything_said(raw: Mapping[str, Any]) -> str:
    """Give all that a workflow or a run says, but for what must survive: a word that stands there is no made-up id."""
    return json.dumps({key: value for key, value in raw.items() if key != KEY}, ensure_ascii=False, default=str)


def unknown_artifact(
    entry: object, where: str, ids: Collection[str], said: str, hint: Callable[[str, str], str] | None = None
) -> Iterator[Problem]:
    """Find that an item names an artifact that is not declared, or looks as if it were to name one.

    ids: those declared; said: as `everything_said` gives it; hint: gives, of the item and the artifact that may be
    meant ("" for none), what mends it; by default what to write into a workflow.
    """
    name = entry.get(ARTIFACT) if isinstance(entry, dict) else None
    if isinstance(name, str) and name not in ids:
        yield error(
            "UNKNOWN_ARTIFACT", at(where, ARTIFACT), f"there is no artifact {shown(name)}", choices(name, list(ids))
        )
    if not isinstance(entry, str) or entry in ids:
        return
    meant = nearest(entry, list(ids), cutoff=_NEAR if " " in entry else _NEAR_WORD) or _short_for(entry, ids)
    mends = hint(entry, meant) if hint is not None else _to_write(entry, meant, list(ids))
    if meant:
        what = f"{shown(entry)} is a text; did you mean the artifact {meant}?"
        yield warning("POSSIBLE_TYPO", where, what, mends)
    elif _ID.fullmatch(entry) and entry not in said:
        message = f"{shown(entry)} looks like an artifact's id; no artifact is called so, and it is taken for a text"
        yield warning("POSSIBLE_TYPO", where, message, mends)


def _short_for(entry: str, ids: Collection[str]) -> str:
    """Give the artifact whose id, or a word of it, begins as a plain word does (`spec`, `specs`: `specification`)."""
    if not _WORD.fullmatch(entry):
        return ""
    stem = entry.lower()
    stem = stem.removesuffix("s") if len(stem) > _SHORTEST else stem
    begins = (one for one in ids if any(part.startswith(stem) for part in re.split(r"[-_.]", one.lower())))
    return next(begins, "")


def _to_write(entry: str, meant: str, ids: list[str]) -> str:
    outright = f'{{"text": {json.dumps(mask(entry)[0], ensure_ascii=False)}}} says that it is a text'
    return f"{f'write {meant} if you meant the artifact' if meant else choices(entry, ids)}; {outright}"
