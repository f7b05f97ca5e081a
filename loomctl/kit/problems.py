"""What is wrong with a file, as data: every finding names its JSON path, says what is the matter and what to do."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, NamedTuple

from loomctl.kit.errors import EXIT_INVALID, LoomError, quoted
from loomctl.kit.text.secrets import mask

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ERROR, WARNING, NOTE = "error", "warning", "note"
POSSIBLE_TYPO = "POSSIBLE_TYPO"
_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")
_SHOWN = 12


class Problem(NamedTuple):
    """One finding.

    severity: `error` (refused), `warning`, or `note` (nothing needs to be done); code: a stable upper-case word;
    where: a JSON path (`$.phases.build.steps[0].kind`) or a line and column, after `file: ` when another file is
    meant; hint: what can be done, or empty.
    """

    severity: str
    code: str
    where: str
    message: str
    hint: str = ""

    def to_dict(self) -> dict[str, str]:
        """Give the finding as `--json` prints it."""
        return self._asdict()


def error(code: str, where: str, message: str, hint: str = "") -> Problem:
    """Make a finding that stops `run`."""
    return Problem(ERROR, code, where, message, hint)


def warning(code: str, where: str, message: str, hint: str = "") -> Problem:
    """Make a finding that stops nothing."""
    return Problem(WARNING, code, where, message, hint)


def note(code: str, where: str, message: str, hint: str = "") -> Problem:
    """Make a finding that tells something which changes nothing."""
    return Problem(NOTE, code, where, message, hint)


def weight(problem: Problem) -> int:
    """Order findings: errors first, notes last."""
    return (ERROR, WARNING, NOTE).index(problem.severity)


def errors(problems: Iterable[Problem]) -> list[Problem]:
    """Keep what stops `run`."""
    return [problem for problem in problems if problem.severity == ERROR]


def at(where: str, *keys: str | int) -> str:
    """Lengthen a JSON path: `at("$", "phases", "build", 0)` is `$.phases.build[0]`."""
    for key in keys:
        if isinstance(key, int):
            where += f"[{key}]"
        elif _PLAIN_KEY.fullmatch(key):
            where += f".{key}"
        else:
            quoted = shown(key)
            where += f"[{quoted}]"
    return where


def in_file(name: str, problems: Iterable[Problem]) -> list[Problem]:
    """Say of which file the findings speak."""
    return [problem._replace(where=f"{name}: {problem.where}") for problem in problems]


def placed(problems: Iterable[Problem], places: Mapping[str, str]) -> list[Problem]:
    """Say of findings in what a text was turned into where in the text they are.

    places: JSON paths with their lines; a longer path is where the nearest of its beginnings is.
    """
    return [one._replace(where=_place(one.where, places)) for one in problems] if places else list(problems)


def _place(where: str, places: Mapping[str, str]) -> str:
    path = where
    while path and path not in places:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return places.get(path, where)


def shown(value: object, limit: int = 60) -> str:
    """Quote a value from a file for a message: one line, escaped, secrets masked, `limit` characters at most."""
    text = repr(mask(value)[0]) if isinstance(value, str) else kind_of(value)  # before it is cut
    return text if len(text) <= limit else text[: limit - 2] + "…" + text[-1]


def kind_of(value: object) -> str:
    """Name a JSON value's kind in words."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    names: dict[type, str] = {str: "text", list: "a list", dict: "an object", int: "a number", float: "a number"}
    return names.get(type(value), f"a {type(value).__name__}")


def nearest(word: str, known: Iterable[str], cutoff: float = 0.75) -> str | None:
    """Give the known word that somebody probably meant, or None."""
    found = difflib.get_close_matches(word[:80], list(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def choices(word: object, known: Sequence[str]) -> str:
    """Make the hint for a word that is none of the known ones."""
    if not known:
        return "there are none"
    meant = nearest(word, known) if isinstance(word, str) else None
    listed = ", ".join(known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
    return f"did you mean {meant}? known: {listed}" if meant else f"known: {listed}"


def refusal(problems: Sequence[Problem], *, what: str, where: str, code: str = "INVALID_WORKFLOW") -> LoomError | None:
    """Make the one error that says all that stops `run`, and the slips that may be why, or None if nothing does.

    Its code is the findings' own where they agree (`NOT_SUPPORTED`, `EXTENDS_CYCLE`, …), else `code`.
    """
    found = errors(problems)
    if not found:
        return None
    codes = {problem.code for problem in found}
    said = [*found, *(problem for problem in problems if problem.code == POSSIBLE_TYPO)]
    lines = [
        f"{problem.where}: {problem.message}" + (f"; {problem.hint}" if problem.hint else "")
        for problem in said[:_SHOWN]
    ]
    if len(said) > _SHOWN:
        lines.append(f"and {len(said) - _SHOWN} more: loomctl check {quoted(where)}")
    return LoomError(
        codes.pop() if len(codes) == 1 else code,
        what,
        where=where,
        why="\n       ".join(lines),
        hint=f"loomctl check {quoted(where)}",
        exit_code=EXIT_INVALID,
    )
