"""Whether a tool's fresh output may be replaced for the model, which text of it that is, and what stands for it (D48).

The model sees one line of observation, an excerpt, and where the whole stands. It is on the way of a hook that must not
be noticed: nothing is imported, and the text is searched, not parsed.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Place = tuple["str | int", ...]

THRESHOLD = 8000  # characters
SHELL = ("Bash", "BashOutput", "bash")
TOOLS = (*SHELL, "WebFetch", "WebSearch", "webfetch", "websearch", "web_fetch")
_MCP = "mcp__"
_KEYS = ("stdout", "stderr", "result", "results", "output", "content", "text", "text_result_for_llm", "llmContent")
_FEWEST = 200  # characters by which a file is known
_NO_TEXT = ("image", "audio", "resource_link")
_DEEPEST = 6
# Words before a command's program, and programs that are not what a command is for.
_BEFORE = ("env", "time", "sudo", "nohup", "exec", "command", "!")
_ASIDE = ("cd", "export", "source", ".", "set", "pushd", "umask", "true")


def is_replaceable(tool_name: str) -> bool:
    """Tell the tools whose output may be replaced: shell, web and MCP."""
    return tool_name in TOOLS or tool_name.startswith(_MCP)


def threshold(settings: Mapping[str, Any], tool_name: str) -> int | None:
    """Give from how many characters on a tool's output is replaced; None where it never is.

    settings: what `reduce:` says, `{live?, live_threshold?, tools?: {NAME: {live?, live_threshold?}}}`.
    """
    tools = settings.get("tools")
    own = tools.get(tool_name) if isinstance(tools, dict) else None
    own = own if isinstance(own, dict) else {}
    if own.get("live", settings.get("live", "large")) in ("off", False):
        return None
    number = own.get("live_threshold", settings.get("live_threshold", THRESHOLD))
    return number if type(number) is int else THRESHOLD


def refusal(event: Mapping[str, Any]) -> str:
    """Say why the response of an event is left as it is, whatever its size; empty where it may be replaced."""
    response = event.get("tool_response")
    if not is_replaceable(str(event.get("tool_name"))):
        return "its tool's output is never replaced"
    if isinstance(response, dict):
        if put_away(response) and event.get("tool_name") not in SHELL:
            return "the host stored it itself"
        if response.get("interrupted") is True or response.get("isImage") is True:
            return "it is not a complete text"
        failed = True in (response.get("isError"), response.get("is_error")) or isinstance(response.get("error"), dict)
        if failed or response.get("result_type", "success") != "success":
            return "it is an error"
    given = event.get("tool_input")
    words = list(_strings(given, _DEEPEST))
    if any(_reads_back(text, str(event.get("cwd") or "")) for text in words):
        return "it reads a stored output back"
    command = given.get("command") if isinstance(given, dict) else None
    if isinstance(command, str) and runs_loom(command):
        return "it is the output of a loomctl command"
    return ""


# Where a host says that it put an output away itself, and showed the beginning alone.
_PUT_AWAY = ("persistedOutputPath", "persistedOutputSize", "persistedOutputShown")


def put_away(response: object) -> str:
    """Give the path at which the host keeps the whole of an output; empty where it gave it whole.

    Only of a shell's is it the host's own word: what an MCP server answers is what that server likes.
    """
    path = response.get(_PUT_AWAY[0]) if isinstance(response, dict) else None
    return path if isinstance(path, str) else ""


def shown(response: object) -> int:
    """Give how many characters of an output that it put away a host says that it shows; 0 where it says nothing."""
    said = response.get(_PUT_AWAY[2]) if isinstance(response, dict) else 0
    return said if type(said) is int and said >= _FEWEST else 0


def given_whole(response: Any) -> Any:
    """Give a copy of a response that does not say that the host put it away."""
    return {key: value for key, value in response.items() if key not in _PUT_AWAY}


def runs_loom(command: str) -> bool:
    """Tell whether a shell command may run `loomctl`: one of its words is, or ends with, that name."""
    if "loomctl" not in command:
        return False
    for separator in "\n\t;&|()`$\"'{}<>=":
        command = command.replace(separator, " ")
    return any(word == "loomctl" or word.endswith("/loomctl") for word in command.split())


def _reads_back(text: str, cwd: str) -> bool:
    """Tell a text that names what lies below `.loom/runs/…/outputs`, or could from where it is said."""
    if "outputs" not in text and "/runs/" not in cwd:
        return False
    _, found, after = text.partition(".loom/runs/")
    if found and "outputs" in after:
        return True
    inside = ".loom/runs/" in f"{cwd}/" or ".loom/runs/" in text
    return inside and ("outputs" in text or "/outputs" in cwd)


def _strings(value: object, depth: int) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in _strings(each, depth - 1)] if depth else []


def main_text(response: object) -> tuple[Place, str]:
    """Give the longest text of a response and its place in it; `((), "")` where there is none."""
    if isinstance(response, str):
        return (), response
    return _longest(response, (), _DEEPEST)


def _longest(value: object, at: Place, depth: int) -> tuple[Place, str]:
    best: tuple[Place, str] = ((), "")
    if isinstance(value, dict):
        if value.get("type") in _NO_TEXT:
            return best
        entries: list[tuple[str | int, object]] = [(key, value[key]) for key in _KEYS if key in value]
    elif isinstance(value, list):
        entries = list(enumerate(value))
    else:
        return best
    for key, entry in entries:
        found = (
            ((*at, key), entry) if isinstance(entry, str) else _longest(entry, (*at, key), depth - 1) if depth else best
        )
        if len(found[1]) > len(best[1]):
            best = found
    return best


def with_text(response: Any, place: Place, text: str) -> Any:
    """Give a copy of the response with another text at a place. Raises LookupError or TypeError if there is none."""
    if not place:
        return text
    key, *rest = place
    copy: Any = dict(response) if isinstance(response, dict) else list(response)
    copy[key] = with_text(copy[key], tuple(rest), text)
    return copy


def program(tool_name: str, given: object) -> str:
    """Name what made an output: the program of a command, else the tool."""
    command = given.get("command") if isinstance(given, dict) else None
    words = main_words(command) if isinstance(command, str) else []
    name = words[0].strip("\"'()&|{}").rpartition("/")[2] if words else ""
    if name and all(one.isalnum() or one in "-_.+" for one in name):
        return name[:40]
    return tool_name[:80] if tool_name.isprintable() else "output"


def main_words(command: str) -> list[str]:
    """Give the words of the first command of a shell's line that is not there for the next one's sake alone.

    Left out are a change of folder and the like, assignments, and what a program is run under (`sudo`, `timeout 60`).
    """
    first: list[str] = []
    for part in command.replace("&&", "\n").replace(";", "\n").split("\n"):
        words = part.split()
        while words and (words[0] in _BEFORE or _is_assignment(words[0])):
            del words[0]
        if words[:1] == ["timeout"]:
            words = words[1:]
            while words and (words[0].startswith("-") or words[0][:1].isdigit()):
                del words[0]
        if words and words[0] not in _ASIDE:
            return words
        first = first or words or part.split()
    return first


def _is_assignment(word: str) -> bool:
    name, sign, _ = word.partition("=")
    return bool(sign and name) and name.replace("_", "a").isalnum() and not name[0].isdigit()


HEAD, TROUBLE, TAIL = 800, 1100, 900  # characters of the excerpt's parts
_WIDEST = 300  # characters of a line
_WIDEST_ALONE = 1200  # of each end of a line that has the excerpt for itself
_HITS = 400  # places of trouble that are looked at
_MOST = (
    2_000_000  # characters of a text of many lines that is looked at whole; of a larger one half as many of each end
)
# What a line that tells of trouble holds, in lower case.
TROUBLES = (
    "error", "fail", "fatal", "panic", "exception", "traceback", "denied", "refused", "abort", "not found", "no such",
    "cannot", "can't", "could not", "couldn't", "unable to", "undefined", "unresolved", "unexpected", "invalid",
    "missing", "timed out", "timeout", "killed", "conflict", "assert", "segmentation", "warning", "not ok", "\ne   ",
    "✗", "✕", "❌",
)  # fmt: skip

_ERRORS = TROUBLES[:8]  # the others are told where there is room


def shortened(program: str, text: str, size: int, path: str) -> str:
    """Give what stands for a text. program: what made it; size: its bytes; path: where it is kept whole."""
    count = text.count("\n") + (not text.endswith("\n"))
    first = f"{program}: {count:,} line{'' if count == 1 else 's'}, {size:,} bytes; shortened by Loom"
    return f"{first}\n{excerpt(text)}\nThe whole output: {path}"


def excerpt(text: str) -> str:
    """Give the first lines, the last ones, and between them lines that tell of trouble; the gaps are named."""
    text = text.rstrip("\n")
    first, between = -1, 0  # the number of the line behind which lines are not looked at, and how many these are
    if len(text) > _MOST and text.find("\n", text.find("\n") + 1) >= 0:
        head, tail = text[: _MOST // 2], text[-(_MOST // 2) :]
        first, between = head.count("\n"), text.count("\n") - head.count("\n") - tail.count("\n") - 1
        text = f"{head}\n{tail}"
    lines = text.split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    wide = _WIDEST_ALONE if len(lines) < 3 else _WIDEST
    shown: dict[int, str] = {}
    _take(shown, lines, range(len(lines)), HEAD, wide)
    _take(shown, lines, range(len(lines) - 1, -1, -1), TAIL, wide)
    if len(shown) < len(lines):
        _take(shown, lines, _troubled(text, lines), TROUBLE, wide)
    parts: list[str] = []
    before = -1
    for number in sorted(shown):
        if number > before + 1:
            parts.append(_gap(number - before - 1 + (max(0, between) if before <= first < number else 0)))
        parts.append(shown[number])
        before = number
    if before + 1 < len(lines):
        parts.append(_gap(len(lines) - before - 1))
    return "\n".join(parts)


def _gap(count: int) -> str:
    return f"[… {count:,} line{'' if count == 1 else 's'} left out …]"


def _take(shown: dict[int, str], lines: list[str], numbers: range | list[int], budget: int, wide: int) -> None:
    """Add lines while they fit. A line that has the excerpt for itself may be wider than the budget."""
    for number in numbers:
        if number in shown:
            continue
        line = _cut(left(lines[number]), wide)
        budget -= len(line) + 1
        if budget < 0 and (wide == _WIDEST or shown):
            return
        shown[number] = line


def _begins_with_place(line: str) -> bool:
    """Tell a message that begins with its place, whatever words it has: `src/cart.go:44:12: no new variables`."""
    file, _, rest = line.partition(":")
    number, _, said = rest.partition(":")
    if not number.isdigit() or " " in file or not ("/" in file or file.rpartition(".")[2][:1].isalpha()):
        return False
    return said[:1].isdigit() or (said[:1] == " " and said[1:2].strip() != "")


def _placed(lines: list[str]) -> list[int]:
    """Give where lines begin that begin with a place."""
    places: list[int] = []
    at = 0
    for line in lines:
        if ":" in line and _begins_with_place(line):
            places.append(at)
            if len(places) == _HITS:
                break
        at += len(line) + 1
    return places


def _troubled(text: str, lines: list[str]) -> list[int]:
    """Give the numbers of lines that tell of trouble, each text once: errors first, and first of all what is rare."""
    low = text.lower()
    if len(low) != len(text):  # a letter whose small form is two: positions would not fit
        low = text.replace("\u0130", "i").lower()
    places = [(at, True) for at in _placed(lines)]
    for word in TROUBLES:
        at = low.find(word)
        while at >= 0 and len(places) < 2 * _HITS:
            places.append((at + (word[0] == "\n"), word not in _ERRORS))
            at = low.find("\n", at + 1)  # one in a line is enough
            at = low.find(word, at) if at >= 0 else -1
    found: list[tuple[bool, int, int]] = []
    seen: set[str] = set()
    alike: dict[str, int] = {}
    number = before = 0
    for place, is_minor in sorted(places):
        number += text.count("\n", before, place)
        before = place
        if number >= len(lines):
            continue
        if found and number == found[-1][2]:
            found[-1] = (found[-1][0] and is_minor, *found[-1][1:])
            continue
        start = text.rfind("\n", 0, place) + 1
        end = text.find("\n", place)
        line = text[start : end if end >= 0 else len(text)][:_WIDEST].strip()
        if line not in seen:
            seen.add(line)
            shape = without_digits(line)
            alike[shape] = alike.get(shape, -1) + 1
            found.append((is_minor, alike[shape], number))
    return [number for _, _, number in sorted(found)]


def without_digits(text: str) -> str:
    """Give a text without 0 to 9: bytes are translated six times as fast as a text."""
    return text.encode("utf-8", "surrogatepass").translate(None, b"0123456789").decode("utf-8", "surrogatepass")


def left(line: str) -> str:
    """Give what a line that was written over with carriage returns shows at its end."""
    return next((part for part in reversed(line.split("\r")) if part.strip()), "") if "\r" in line else line


def _cut(line: str, wide: int) -> str:
    """Cut a long line in its middle, outside of terminal escapes and of surrogate pairs."""
    if len(line) <= wide:
        return line
    keep = wide if wide == _WIDEST_ALONE else wide // 2
    start, end = keep, len(line) - (keep if wide == _WIDEST_ALONE else wide // 3)
    if end <= start:
        return line
    escape = line.rfind("\x1b", max(0, start - 24), start)
    if escape >= 0 and not any(one.isalpha() for one in line[escape + 1 : start]):
        start = escape
    escape = line.rfind("\x1b", max(0, end - 24), end)
    if escape >= 0 and not any(one.isalpha() for one in line[escape + 1 : end]):
        end = escape
    if "\ud800" <= line[start - 1] <= "\udbff":
        start -= 1
    if "\udc00" <= line[end] <= "\udfff":
        end += 1
    return f"{line[:start]} [… {end - start:,} characters left out …] {line[end:]}"
