"""What a tool gave back, read out of whatever shape the tool or its host gives it (D47)."""

from __future__ import annotations

import json
import re

from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import is_encoded, mask
from loomctl.reduction.live import TROUBLES, main_words, without_digits
from loomctl.reduction.tool_steps import EDIT, LIST, MATCHES, READ, SEARCH, SHELL, VISIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from loomctl.reduction.tool_steps import Rule


class Output(NamedTuple):
    """A result as far as the rules look at it.

    text: what the tool printed, read or found; at: the place of it in the result, None where it is the result; errors:
    what it said besides; exit_code: None where none is known; facts: numbers for the first line; result: as it came.
    """

    text: str
    at: tuple[str | int, ...] | None
    errors: str
    success: bool
    exit_code: int | None
    facts: dict[str, Any]
    result: object = None

    @property
    def size(self) -> int:
        """Give the bytes of the text in UTF-8."""
        return len(self.text.encode("utf-8", "surrogatepass"))

    @property
    def lines(self) -> int:
        """Give the number of the text's lines; a host's word about the exit code is none."""
        return lines_of(without_exit_code(self.text))


# Where the text of a result stands, by the names that tools give it.
_TEXTS = (
    ("stdout",), ("file", "content"), ("content",), ("result",), ("text",), ("output",), ("results",), ("filenames",),
    ("entries",), ("matches",), ("body",), ("data",), ("message",), ("task", "output"), ("llmContent",),
    ("text_result_for_llm",),
)  # fmt: skip
# What hosts add to a result about their own doing.
ASIDE = frozenset({
    "durationMs", "durationSeconds", "numFiles", "numLines", "truncated", "totalDurationMs", "totalTokens",
    "totalToolUseCount", "toolStats", "usage", "tool_use_id", "isError", "is_error", "mode", "type", "prompt",
    "oldTodos", "returnDisplay", "result_type",
})  # fmt: skip
_DEEPEST = 12
_SPREAD = 200_000  # characters of JSON that stands over lines: no C code makes them
_BLOB = 400  # characters without a blank: an image in base64, and no text
_SEARCHES = ("grep", "rg", "egrep", "fgrep", "zgrep", "pgrep", "ag", "diff", "cmp", "test", "[")
_SEARCH = re.compile(r"\b[efz]?grep\b(?: +-[\w=-]+(?: \d+)?)* +(?:'([^']*)'|\"([^\"]*)\"|([^\s|;&<>]+))")
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\[\s\S])*(?:\"|\\?\Z)")  # what nobody closes ends with the text
_SAID_CODE = re.compile(r"\A(?:Error: )?Exit code \d{1,3}(?:\n|\Z)")
# What some hosts put around what a command printed, or a file held, and tell its exit code in.
_OPENS = (
    re.compile(r"\A(?:<untrusted_context>\n|Command: (?:.*\n){1,100}?Directory: .*\n)Output: ?"),
    re.compile(r"\AExit code: (?P<code>\d{1,3})\nWall time: .*\n(?:Total output lines: .*\n)?Output:\n"),
    re.compile(r"\A<path>.*</path>\n<type>.*</type>\n<content>\n"),
)
_CLOSES = (
    re.compile(
        r"(?:\nError: \(none\))?(?:\nExit Code: (?P<code>\d{1,3}|\(none\)))?"
        r"(?:\n(?:Signal|Background PIDs|Process Group PGID): .*)*(?:\n</untrusted_context>)?\s*\Z"
    ),
    re.compile(r"\Z"),
    re.compile(r"\n</content>\s*\Z"),
)
_SHELL_ENDED = re.compile(r"\n?<shellId: \S+ completed with exit code (?P<code>\d{1,3})>\s*\Z")
_FRAMES = ("<untrusted_context>", "Command: ", "Exit code: ", "<path>")
_LONGEST_END = 2000  # characters of what closes a frame


def read_output(rule: Rule, args: Mapping[str, Any], result: object, *, failed: bool) -> Output:
    """Read a result, of whatever shape; failed: the host said that the call did."""
    at: tuple[str | int, ...] | None = None
    text = ""
    blocks = _blocks(result)
    only = [number for number, block in enumerate(blocks) if isinstance(block.get("text"), str)]
    if isinstance(result, str):
        text = result
    elif len(only) == 1:
        at = (*(("content",) if isinstance(result, dict) else ()), only[0], "text")
        text = blocks[only[0]]["text"]
    elif isinstance(result, dict):
        for place in _TEXTS:
            value = _at(result, place)
            if isinstance(value, str) and (value or not text):
                text, at = value, place
                if value:
                    break
        if at is None:
            text = as_text(result)
    elif result is not None:
        text = as_text(result)
    held = result if isinstance(result, dict) else {}
    errors = next((held[key] for key in ("stderr", "error") if isinstance(held.get(key), str) and held[key]), "")
    task = held.get("task")
    codes = {**(task if isinstance(task, dict) else {}), **held}
    code = next(
        (codes[key] for key in ("exit_code", "exitCode", "returncode", "code") if type(codes.get(key)) is int), None
    )
    metadata = held.get("metadata")
    if code is None and isinstance(metadata, dict) and type(metadata.get("exit")) is int:
        code = metadata["exit"]
    if rule.action == VISIT:
        code = None
    elif code is None:
        code = unframed(text)[1] if rule.action in (SHELL, EDIT) else None
        code = _exit_code_said(text if failed or isinstance(result, str) else "") if code is None else code
    said_no = any(held.get(key) is True for key in ("is_error", "isError")) or bool(held.get("error"))
    said_no = said_no or held.get("success") is False or held.get("result_type", "success") != "success"
    is_none_found = rule.action in (SHELL, MATCHES) and code == 1 and ends_with_a_search(args)
    failed = failed and not (is_none_found and not without_exit_code(text).strip())
    facts = {"items": _count(rule, held, result, text), **_facts(held, is_visit=rule.action == VISIT)}
    facts["images"] = sum(block.get("type") == "image" for block in blocks)
    refused = rule.action == VISIT and type(facts.get("status")) is int and facts["status"] >= 400
    ended_ill = code not in (None, 0) and not is_none_found
    facts["timed_out"] = held.get("timed_out") is True or held.get("timedOut") is True
    stopped = held.get("interrupted") is True or facts["timed_out"]
    success = not (failed or said_no or ended_ill or refused or stopped)
    return Output(text, at, errors, success, code, facts, result)


def _blocks(result: object) -> list[dict[str, Any]]:
    """Give the blocks of a result that is a list of them, or holds one as its `content`; else none."""
    blocks = result.get("content") if isinstance(result, dict) else result
    if not isinstance(blocks, list) or not blocks:
        return []
    return blocks if all(isinstance(one, dict) and isinstance(one.get("type"), str) for one in blocks) else []


def _facts(held: Mapping[str, Any], *, is_visit: bool) -> dict[str, Any]:
    file = held.get("file")
    named = {**held, **(file if isinstance(file, dict) else {})}
    found = {key: named[key] for key in _FACTS if isinstance(named.get(key), (int, str)) and named.get(key) != ""}
    found["form"] = str(held.get("type", "")) if isinstance(file, dict) else ""
    if isinstance(named.get("cells"), list):
        found["cells"] = len(named["cells"])
    code = found.pop("code", None)
    return {"status": code, **found} if is_visit and code is not None else found


_FACTS = (
    "status", "title", "numLines", "totalLines", "startLine", "numFiles", "numMatches", "interrupted", "code", "bytes",
    "originalSize", "type", "count", "mode", "truncated", "backgroundTaskId", "returnCodeInterpretation",
)  # fmt: skip


def ends_with_a_search(args: Mapping[str, Any]) -> bool:
    """Tell a command whose exit code 1 says that nothing was found: its last, or its only one, is a search."""
    command = _QUOTED.sub("q", str(args.get("command", "")))
    words = [word.rpartition("/")[2] for word in main_words(command.rpartition("|")[2])[:2]]
    if "||" in command or main_words(command) != main_words(command.replace("&&", ";").rpartition(";")[2]):
        return False  # of several commands it is not told which one ended so
    return (words[:1] == ["git"] and words[1:] in (["grep"], ["diff"])) or (bool(words) and words[0] in _SEARCHES)


def is_a_search(args: Mapping[str, Any]) -> bool:
    """Tell a command that is a search from its begin on: what it prints is content, whatever words are in it."""
    words = [word.rpartition("/")[2] for word in main_words(_QUOTED.sub("q", str(args.get("command", ""))))[:2]]
    return words == ["git", "grep"] or (bool(words) and words[0] in _SEARCHES)


def searched_for(args: Mapping[str, Any]) -> list[str]:
    """Give the words that a command's last search looks for, in small letters."""
    searches = _SEARCH.findall(str(args.get("command", ""))[-_LIKE * 10 :])
    pattern = "".join(searches[-1]) if searches else ""
    return [word.lower() for word in re.findall(r"[\w.-]{3,}", pattern.replace("\\b", " "))]


def hides_exit_code(args: Mapping[str, Any]) -> bool:
    """Tell a command that may end with 0 though its program failed: `make | tail`, `make || true`, `make; date`."""
    command = _QUOTED.sub("q", str(args.get("command", ""))).strip()
    return any(sign in command for sign in "|;\n")


def lines_of(text: str) -> int:
    """Count the lines of a text."""
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def without_exit_code(text: str) -> str:
    """Give a text without the line with which a host tells the exit code."""
    if "xit code " in text[:20]:
        return _SAID_CODE.sub("", text, count=1)
    return unframed(text)[0]


def unframed(text: str) -> tuple[str, int | None]:
    """Give a text without what a host put around it, and the exit code that this tells; None where it tells none."""
    if text.endswith(">") or text[-3:].rstrip().endswith(">"):
        ended = _SHELL_ENDED.search(text, max(0, len(text) - 200))
        if ended:
            return text[: ended.start()], int(ended["code"])
    if not text.startswith(_FRAMES):
        return text, None
    for opens, closes in zip(_OPENS, _CLOSES, strict=True):
        begun = opens.match(text)
        if begun is None:
            continue
        ended = closes.search(text, max(begun.end(), len(text) - _LONGEST_END))
        said = [one.groupdict().get("code") for one in (begun, ended) if one is not None]
        code = next((int(one) for one in said if one and one.isdecimal()), None)
        return text[begun.end() : ended.start() if ended else len(text)], code
    return text, None


def _exit_code_said(text: str) -> int | None:
    if text.startswith("<status>"):  # as a host tells of a shell in the background
        said = text[:400].partition("<exit_code>")[2].partition("</exit_code>")[0]
        return int(said) if said.isascii() and said.isdecimal() else None
    head = text[:200].lower()
    mark = head.find("exit code ")
    digits = head[mark + 10 : mark + 14].split()[:1] if mark >= 0 else []
    number = digits[0].rstrip(".:,") if digits else ""
    return int(number) if number.isascii() and number.isdecimal() else None


def _count(rule: Rule, held: Mapping[str, Any], result: object, text: str) -> int:
    if type(held.get("numFiles")) is int and rule.action == LIST:
        return int(held["numFiles"])
    for key in ("entries", "results", "filenames", "matches"):
        if isinstance(held.get(key), list):
            return sum(map(_found, held[key])) if rule.action == SEARCH else len(held[key])
    if isinstance(result, list):
        return len(result)
    if rule.action == SEARCH:
        return text.count('"url"') or text.count("http")
    return len(entries(text)) if rule.action == LIST else 0


def _found(entry: object) -> int:
    """Count what an entry of a search's results stands for: one, a list of them, or words about them."""
    if isinstance(entry, dict) and isinstance(entry.get("content"), list):
        return len(entry["content"])
    return int(not isinstance(entry, str) or entry.startswith("http"))


def entries(text: str) -> list[str]:
    """Give the entries of a listing, one on a line; of a tree neither its root nor what a host adds below it."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if lines and lines[0].endswith(":") and lines[0].startswith(("Found ", "Directory listing for ")):
        lines = [line for line in lines[1:] if line != "---" and not line.endswith(" ignored)")]
        return [f"{line[6:]}/" if line.startswith("[DIR] ") else line for line in lines]
    marked = [line[2:] for line in lines if line.startswith("- ")]
    if marked and marked[0].startswith("/") and marked[0].endswith("/"):
        return marked[1:]
    return marked or lines


def spoken(rule: Rule, result: object) -> str:
    """Give the words of a result that is a value and no text: what it lists, or its texts, each with its key.

    What is empty, an image in base64, and what a host says of its own doing are left out.
    """
    if rule.action in (LIST, MATCHES) and isinstance(result, dict):
        for key in ("filenames", "entries", "matches"):
            if isinstance(result.get(key), list):
                return "\n".join(map(_entry, result[key]))
    if rule.action == READ and isinstance(result, dict) and isinstance(result.get("file"), dict):
        result = {key: value for key, value in result["file"].items() if key != "filePath"}
    if isinstance(result, dict):
        result = {key: value for key, value in result.items() if key not in ("error", "stderr")}  # `errors` has them
    return "\n".join(_words("", result, _DEEPEST))


def _entry(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    name = value.get("path", value.get("name", value.get("file")))
    if not isinstance(name, str):
        return as_text(value)
    return f"{name}/" if value.get("type") in ("dir", "directory", "folder") and not name.endswith("/") else name


def _words(key: str, value: object, depth: int) -> Iterator[str]:
    if isinstance(value, (dict, list)) and depth:
        pairs = value.items() if isinstance(value, dict) else ((key, one) for one in value)
        for name, one in pairs:
            if name not in ASIDE:
                yield from _words(str(name), one, depth - 1)
        return
    if value in (None, "", False) or isinstance(value, (dict, list)):
        return
    told = str(value)
    if len(told) < _BLOB or any(map(str.isspace, told[:_BLOB])):
        yield f"{key}: {told}" if key and key not in ("text", "content", "result") else told


def as_text(value: object) -> str:
    """Give a value in JSON, over lines where it is no large one, or what stands for one that has none."""
    try:
        told = json.dumps(value, ensure_ascii=False, default=str)
        return told if len(told) > _SPREAD else json.dumps(value, ensure_ascii=False, indent=1, default=str)
    except (ValueError, RecursionError, TypeError):
        return str(type(value))


def _at(value: object, place: tuple[str, ...]) -> object:
    for key in place:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


# ---- What is looked at of a text or value too large to be looked at whole; the rest is still behind the step (D59).
# Looking costs seconds a megabyte, and a hook has few. Of what is larger than `CLEANED` only the two ends are cleaned
# and masked, and of what is between them the lines that stand out; of what comes of that, `looked_at` gives the ends
# and the lines between that tell of trouble.

CLEANED = 2_000_000  # characters of a text that is cleaned and masked whole
FIRST, LAST = 800_000, 1_200_000  # of a larger one
_BETWEEN = 16_000_000  # characters between these in which lines are looked for that stand out
MARGIN = 16_384  # characters beyond a cut that are masked with it: a secret that the cut parts is no shorter than half
MOST_VALUES = 10_000  # texts, numbers and the like that are looked at in one value

WHOLE = 200_000  # characters of a text that is looked at whole
HEAD, TAIL = 40_000, 60_000
_HITS = 200  # lines without a word of trouble that few are like
_FEW = 3  # lines that are alike: so few are rare, and so many stand for all
_LIKE = 200  # characters by which lines are alike
_WIDEST = 1000  # characters of such a line, and of those beside it that may explain it
_ABOVE, _BELOW = 2, 3
_AT = re.compile(r"\.[A-Za-z]\w{0,4}(?::\d|\(\d)")  # a place in a file: `cart.py:3`, `cart.ts(3,1)`
_LONGEST_KEY = 120  # lines of a private key
_CODED = re.compile(r"[A-Za-z0-9+/]{16}")  # in such a line
_MARGINS = 2  # times what is looked at: so much of a text is masked
_BESIDE = 500  # characters beside what is kept of such a line that are masked with it


def cleaned(text: str, clean: Callable[[str], str]) -> str:
    """Give a text cleaned, with its secrets masked: of a large one what `looked_at` may take of it, and a margin.

    Masking costs up to two seconds a megabyte. What stands beside a cut is masked with a margin, which then goes or
    lies outside of what is looked at: no half of a secret is left.
    """
    if len(text) <= CLEANED:
        return mask(looked_at(clean(text), _MARGINS))[0]
    near, far = _LIKE * 20, len(text) - LAST
    first = text.rfind("\n", FIRST - near, FIRST) + 1 or FIRST  # a piece of a line is no line
    last = text.find("\n", far, far + near) + 1 or far
    beyond, before = clean(text[first : first + MARGIN]), clean(text[last - MARGIN : last])
    head = mask(looked_at(clean(text[:first]) + beyond))[0]
    tail = mask(looked_at(before + clean(text[last:])))[0]
    between = _between(text[first - 1 : last][:_BETWEEN].split("\n")[1:-1], WHOLE / 2)
    return f"{head[: len(head) - len(beyond)]}\n{mask(clean(between))[0]}\n{tail[len(before) :]}"


def masked_head(text: str, limit: int) -> str:
    """Give the beginning of a text, `limit` characters and more, its secrets masked."""
    if len(text) <= limit + MARGIN:
        return mask(text)[0]
    return mask(text[: limit + MARGIN])[0][:-MARGIN]


def bounded(value: Any) -> Any:
    """Give a copy of a JSON value with at most `MOST_VALUES` entries, each list's from both of its ends."""
    return _bounded(value, [MOST_VALUES], _DEEPEST)


def _bounded(value: Any, room: list[int], depth: int) -> Any:
    room[0] -= 1
    if isinstance(value, str):
        return value if len(value) <= CLEANED else f"{value[:FIRST]}\n{value[-LAST:]}"
    if not isinstance(value, (dict, list)) or not depth:
        return value if not isinstance(value, (dict, list)) else None
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    half = max(0, room[0]) // 2
    if len(items) > 2 * half:
        items = [*items[:half], *items[len(items) - half :]]
    found = [(key, _bounded(one, room, depth - 1)) for key, one in items if room[0] > 0]
    return dict(found) if isinstance(value, dict) else [one for _, one in found]


def looked_at(text: str, times: int = 1) -> str:
    """Give a text, or of a large one its ends and between them, in their order, lines that stand out.

    At most `WHOLE` characters; nothing in it is changed but lines that are cut. times: so much larger is everything.
    """
    whole, head, tail = (times * size for size in (WHOLE, HEAD, TAIL))
    if len(text) <= whole:
        return text
    first = text.rfind("\n", 0, head) + 1 or head
    last = text.find("\n", len(text) - tail) + 1 or len(text) - tail
    between = _between(text[first:last].split("\n"), whole - first - (len(text) - last) - 2)
    return f"{text[:first]}\n{between}\n{text[last:]}"


def _between(lines: list[str], room: float) -> str:
    """Give lines that stand out and those beside them, in their order. room: characters."""
    chosen: dict[int, str] = {}
    keys = _of_private_keys(lines)
    for number in _standing_out(lines):
        for at in range(max(0, number - _ABOVE), min(len(lines), number + _BELOW + 1)):
            if at not in chosen:
                line = "" if at in keys or is_encoded(lines[at]) else _window(lines[at])
                room -= len(line) + 1
                if room < 0:
                    break
                chosen[at] = line
        if room < 0:
            break
    return "".join(f"{chosen[number]}\n" for number in sorted(chosen))


def _of_private_keys(lines: list[str]) -> set[int]:
    """Give the numbers of lines of private keys, whatever stands before them in each: a part of one is not masked.

    A key may have begun before the first line, or end behind the last; what is said between its lines is none of it.
    """
    found: set[int] = set()
    seen = 0  # so many lines were looked at
    for number, line in enumerate(lines):
        if "PRIVATE KEY" in line and "-----" in line:
            begins = "-----BEGIN" in line
            first = max(seen, number if begins else number - _LONGEST_KEY)
            seen = max(seen, min(len(lines), number + _LONGEST_KEY) if begins else number)
            found.update(at for at in range(first, seen) if _CODED.search(lines[at]))
    return found


def _standing_out(lines: list[str]) -> list[int]:
    """Give the numbers of lines worth a look: those with words of trouble that few others are like, some of the others.

    Lines are alike if they differ in digits alone; of many that are, the first ones stand for all.
    """
    shapes = [without_digits(line[:_LIKE]) for line in lines]
    counts: dict[str, int] = {}
    ranks: list[tuple[int, int]] = []
    for shape in shapes:
        counts[shape] = counts.get(shape, 0) + 1
    taken: dict[str, int] = {}
    said: dict[str, int] = {}
    rare: list[tuple[int, str]] = []
    few = sum(count <= _FEW for count in counts.values()) <= _HITS
    for number, shape in enumerate(shapes):
        taken[shape] = taken.get(shape, 0) + 1
        if taken[shape] > _FEW or not shape.strip():
            continue
        is_rare = counts[shape] <= _FEW
        if _is_troubled(lines[number]):
            words = _words_alone(shape) if is_rare else ""
            said[words] = said.get(words, 0) + 1
            rare.append((number, words))
        elif is_rare and few:
            ranks.append((2, number))
    ranks += [(0 if words and said[words] <= _FEW else 1, number) for number, words in rare]
    return [number for _, number in sorted(ranks)]


def _words_alone(shape: str) -> str:
    """Give what is no id of a line: ids have other letters in each."""
    return " ".join(word for word in shape.split() if word[:-1].isalpha() or len(word) == 1) or shape


def _is_troubled(line: str) -> bool:
    low = line.lower()
    return (any(word in low for word in TROUBLES) or _AT.search(line[:_LIKE]) is not None) and not is_encoded(line)


def _window(line: str) -> str:
    """Give a line, or of a long one what stands around its trouble, masked before it is cut."""
    if len(line) <= _WIDEST:
        return line
    low = line.lower()
    place = min((at for at in map(low.find, TROUBLES) if at >= 0), default=0)
    start = max(0, min(place - _WIDEST // 2, len(line) - _WIDEST))
    end = start + _WIDEST
    first, last = max(0, start - _BESIDE), min(len(line), end + _BESIDE)
    masked = mask(line[first:last])[0]
    return masked[_BESIDE if first else start : len(masked) - (_BESIDE if last < len(line) else len(line) - end)]
