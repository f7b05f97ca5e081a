"""Finding private keys: between their two marks, after the first or before the second alone, or in base64."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_MARK = (
    r"-{4,5} ?(BEGIN|END)[ +](?:[A-Z0-9]{1,20}[ +]){0,4}PRIVATE[ +]KEY(?:[ +]BLOCK)? ?-{4,5}"
    r"|Private-Lines: [0-9]{1,4}(?=\r?\n)"
)
_BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_RUN = r"[A-Za-z0-9+/=]{16,}"
_RUNS = r"[ \t\"']{0,9}[A-Za-z0-9+/=]{16,}(?:[ \t]{1,4}[A-Za-z0-9+/=]{4,})*"
_QUOTED_END = r"[ \t]{0,40}([A-Za-z0-9+/=]{1,256})[\"'`]"
_QUOTES = ('"', "'", "`")
_LARGEST = 64 << 10
_LONGEST_LINE = 512
_BLANK = " \t\r\n\"'`,;\\"
_IN_BASE64 = "LS0tLS1CRUdJTi"  # the first mark's beginning


def private_keys(text: str) -> Iterator[tuple[int, int, str]]:
    """Find where the letters of each private key begin and end; all lines between them are part of it."""
    if "PRIVATE" in text or "Private-Lines" in text:
        import re  # most texts have nothing to look at

        marks = [*re.compile(_MARK).finditer(text)]
        before = 0  # where what no other mark has taken begins
        for number, mark in enumerate(marks):
            following = marks[number + 1] if number + 1 < len(marks) else None
            until = following.start() if following else len(text)
            if mark[1] != "END":
                start, end = mark.end(), until
                if not following or following[1] != "END" or not _is_mostly_key(text, start, end):
                    start, end = _lines_after(text, mark.start(), mark.end(), until)
            else:
                start, end = _lines_before(text, before, mark.start())
            before = mark.end() if mark[1] == "END" else end
            if start < end:
                inside = text[start:end]
                yield end - len(inside.lstrip()), start + len(inside.rstrip()), "private key"
    at = text.find(_IN_BASE64)
    while at >= 0:
        end = at + len(_IN_BASE64)
        if _is_private(text[at : at + 76]):
            _, end = _lines_after(text, at, at, len(text))
            yield at, end, "private key"
        at = text.find(_IN_BASE64, end)


def _is_mostly_key(text: str, start: int, end: int) -> bool:
    """Tell a key, its lines perhaps numbered, from what somebody wrote about the two marks."""
    import re

    if end - start > _LARGEST:
        return False
    return 5 * sum(map(len, re.compile(_RUN).findall(text, start, end))) >= 2 * (end - start)


def _is_private(encoded: str) -> bool:
    from binascii import Error, a2b_base64

    run = encoded[: len(encoded) - len(encoded.lstrip(_BASE64))]
    try:
        return b"PRIVATE KEY" in a2b_base64(run[: len(run) // 4 * 4])
    except Error:
        return False


def _shape(beginning: str) -> str:
    """Give what stands before a key on its line, but for blanks, quotes and which number it is."""
    import re

    return re.compile(r"[0-9]+").sub("0", beginning).strip(_BLANK + "+")


def _is_line(content: str, shapes: tuple[str, str], *, inside: bool) -> int:
    """Give how many letters at the end of a line are a key's; shapes: what may stand before them.

    inside: the line next to it was a key's; its last line is shorter.
    """
    beginning = content.rstrip(_BASE64)
    run = content[len(beginning) :]
    is_last = inside and ("=" in run or (any(map(str.isdigit, run)) and run != run.lower()))
    if inside and beginning.endswith(_QUOTES) and len(run) >= 16:  # the line on which a text in quotes begins
        return len(run)
    return len(run) if (len(run) >= 16 or is_last) and _shape(beginning) in shapes else 0


def _lines_after(text: str, begins: int, at: int, until: int) -> tuple[int, int]:
    """Give where the key begins and ends that follows a mark without another one: while its lines look alike."""
    import re

    shapes = ("", _shape(text[max(0, begins - 80) : begins].rpartition("\n")[2]))
    same_line = re.compile(_RUNS).match(text, at, until)
    start = end = at
    if same_line:
        start, end = same_line.end() - len(same_line[0].lstrip(_BLANK)), same_line.end()
    line = text.find("\n", end, min(until, end + _LONGEST_LINE)) + 1
    while line:
        stop = min(until, line + _LONGEST_LINE)
        newline = text.find("\n", line, stop)
        content = text[line : newline if newline >= 0 else stop].rstrip(_BLANK)
        letters = _is_line(content, shapes, inside=start < end)
        if letters:
            start = start if start < end else line + len(content) - letters
            end = line + len(content)
        elif start < end and (last := re.compile(_QUOTED_END).match(text, line, stop)):
            end = last.end(1)
            break
        elif _shape(content) not in shapes and (start < end or ": " not in content):  # headers stand before a key
            break
        line = newline + 1
    return start, end


def _lines_before(text: str, since: int, until: int) -> tuple[int, int]:
    """Give where the key begins and ends whose first mark was cut off."""
    shapes = ("", _shape(text[max(since, until - 80) : until].rpartition("\n")[2]))
    start, end, stop = until, since, until
    while stop > since:
        line = text.rfind("\n", since, stop) + 1 or since
        content = text[line:stop].rstrip(_BLANK)
        letters = _is_line(content, shapes, inside=True)
        if letters:
            start, end = line + len(content) - letters, max(end, line + len(content))
        elif _shape(content) not in shapes:
            break
        stop = line - 1
    return start, end
