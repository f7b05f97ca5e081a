"""Whether the conditions and state paths of a workflow can be read at all, asked of the engines that will read them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from loomctl.expressions import engine
from loomctl.expressions.conditions import ROOTS
from loomctl.kit.json.fields import objects
from loomctl.kit.problems import at, error, shown, warning
from loomctl.runs.model.visits import OUTCOMES, SPELLINGS
from loomctl.workflows import artifacts
from loomctl.workflows.steps import EVIDENCE, each_step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from loomctl.kit.problems import Problem

_CONDITION = ("condition", "condition", "CONDITION_SYNTAX", "JavaScript expression")
_OF_ARTIFACT = "one JavaScript expression over state, such as state.artifacts.spec_path != null"
_OF_STEP = 'one JavaScript expression over state, outcome, context and preferred_label, such as outcome == "succeeded"'
_PATH = ("path", "PATH_SYNTAX", "JSONPath")
_OF_STATE = "a path into state.json, such as artifacts.spec_path or $.artifacts['spec-path']"

_TEXTS = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`|/(?:[^/\\\n]|\\.)+/""")
_SETS = re.compile(r"(?<![=!<>])=(?![=>])")


def problems(raw: object, *, of_dot: bool = False) -> Iterator[Problem]:
    """Find syntax errors in every `condition` (JavaScript, D12) and `path_from_state` (JSONPath, D11).

    A condition with a single = is warned of: in JavaScript it sets, so that it is true whatever the value was. So is
    one with a text that lacks its quotes: it throws, which counts as false (`bare_words`).
    of_dot: what is JavaScript here was written in DOT's own words, which the error then speaks of.
    raw: a workflow as it was read; what is no text is passed over, the parser speaks of it.
    """
    for where, artifact in artifacts.declared(raw):
        yield from _problem(artifact, where, *_CONDITION, _OF_ARTIFACT)
        yield from _problem(artifact, where, "path_from_state", *_PATH, _OF_STATE)
    steps = each_step(raw)
    for place, step in steps:
        for where, piece in objects(step, EVIDENCE, place):
            yield from _problem(piece, where, *_CONDITION, _OF_STEP)
            yield from _problem(piece, where, "state", *_PATH, _OF_STATE)
    for place, step in steps:
        for where, transition in objects(step, "transitions", place):
            for found in _problem(transition, where, *_CONDITION, _OF_STEP):
                yield _in_dots_words(found) if of_dot and found.code == "CONDITION_SYNTAX" else found


def _in_dots_words(found: Problem) -> Problem:
    said = found.message.rpartition(" is no JavaScript expression: ")[2]
    hint = "a regular expression behind matches is the usual cause; js: before a condition means JavaScript"
    return found._replace(message=f"the condition of this edge cannot be evaluated: {said}", hint=hint)


def _problem(
    holder: Mapping[str, Any], where: str, key: str, kind: str, code: str, what: str, hint: str
) -> Iterator[Problem]:
    source = holder.get(key)
    said = engine.syntax_error(source, kind) if isinstance(source, str) and source.strip() else None
    if said:
        yield error(code, at(where, key), f"{shown(source)} is no {what}: {said}", hint)
    if said or kind != "condition" or not isinstance(source, str):
        return
    if _SETS.search(_TEXTS.sub("x", source)):
        yield warning(
            "CONDITION_SETS", at(where, key), f"{shown(source)} sets a value: a single = compares nothing", "write =="
        )
    elif (word := bare_word(source)) is not None:
        why = f"{shown(source)} throws, and is false then: {shown(word)} is a name that nothing has"
        yield warning("CONDITION_WORD", at(where, key), why, f'a text has quotes: "{word}"')


_QUOTED = re.compile(r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\"""")
_TOKENS = re.compile(r"[=!]==?|=>|\?\.|[\w$]+|\S")
_EQUAL = frozenset(("==", "!=", "===", "!=="))
_LEADS_ON = frozenset((".", "?.", "[", "("))
_MEANT = frozenset((*OUTCOMES, *SPELLINGS))
# What JavaScript knows by itself, and what may stand before a value.
_KNOWN = frozenset(
    """
    true false null undefined NaN Infinity this globalThis arguments
    Object Array String Number Boolean Symbol BigInt Function Date RegExp Math JSON Reflect Promise Proxy Intl Atomics
    Error AggregateError EvalError RangeError ReferenceError SyntaxError TypeError URIError InternalError
    Map Set WeakMap WeakSet WeakRef Iterator FinalizationRegistry ArrayBuffer SharedArrayBuffer DataView
    Int8Array Uint8Array Uint8ClampedArray Int16Array Uint16Array Int32Array Uint32Array Float16Array Float32Array
    Float64Array BigInt64Array BigUint64Array DOMException CallSite
    DisposableStack AsyncDisposableStack SuppressedError atob btoa
    parseInt parseFloat isNaN isFinite escape unescape eval encodeURI encodeURIComponent decodeURI decodeURIComponent
    performance queueMicrotask navigator
    new void delete in instanceof await async yield class super import let of
    """.split()  # noqa: SIM905 - a hundred lines of list would tell less
)
# Where one of these stands, a word may be a name that the condition makes itself, or be none of the condition's.
_MAKES_NAMES = frozenset(("=>", "{", "function", "typeof", "`", "/", "\\", "'", '"', "#"))


def bare_word(source: str) -> str | None:
    """Give the first word of a condition that is a text without its quotes; None where there is none for certain.

    It is one of an outcome's words, or is compared by `==`, `===`, `!=` or `!==` with what a condition sees. What may
    have a meaning is passed over: a word before `.`, `[` or `(`, and each condition that makes names of its own or
    that is not read with certainty here (a function, an object, a template, a slash). source: as it was written, and
    of right syntax.
    """
    tokens: list[str] = _TOKENS.findall(_QUOTED.sub("0", source))
    if not _MAKES_NAMES.isdisjoint(tokens):
        return None
    for place, word in enumerate(tokens):
        if _is_bare(tokens, place) and (word in _MEANT or _is_compared(tokens, place)):
            return word
    return None


def _is_bare(tokens: list[str], place: int) -> bool:
    word = tokens[place]
    if not (word[0].isalpha() or word[0] in "_$") or word in _KNOWN or word in ROOTS:
        return False
    return _at(tokens, place - 1) not in (".", "?.") and _at(tokens, place + 1) not in _LEADS_ON


def _is_compared(tokens: list[str], place: int) -> bool:
    before = _at(tokens, place - 1) in _EQUAL and _ends_a_path(tokens, place - 2)
    return before or (_at(tokens, place + 1) in _EQUAL and _at(tokens, place + 2) in ROOTS)


def _ends_a_path(tokens: list[str], place: int) -> bool:
    """Tell whether what ends at a place is one of a condition's names, or what it holds: `context.tests['passed']`."""
    while place >= 0:
        if tokens[place] == "]":
            while place >= 0 and tokens[place] != "[":
                place -= 1
            place -= 1
        elif _at(tokens, place - 1) in (".", "?."):
            place -= 2
        else:
            return tokens[place] in ROOTS
    return False


def _at(tokens: list[str], place: int) -> str:
    return tokens[place] if 0 <= place < len(tokens) else ""
