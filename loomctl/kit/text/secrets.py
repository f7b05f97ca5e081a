"""Masking keys, tokens and passwords in text that is about to be put into a conversation (D21)."""

from __future__ import annotations

from loomctl.kit import quick_json
from loomctl.kit.text import assigned_secrets, secret_kinds
from loomctl.kit.text.assigned_secrets import is_placeholder, looks_random
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secret_kinds import private_keys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    Span = tuple[int, int, str]  # where a secret begins, where it ends, its kind

_SHORTEST_TOKEN = 20
# Of a token of the table, escapes and all: dozens of beginnings are looked for, and in words of this length first.
_SHORTEST_WORD = 16
_SHORTEST_DISCORD = 58
# A line of PostgreSQL's password file: host, port, database, user, password.
_PGPASS = (
    r"[^\s:]{1,256}:(?:[0-9]{2,5}|\*):[^\s:]{1,256}:[^\s:]{1,256}:([^\s:]{3,255}[^\s:\"'`])[ \t]{0,9}(?=[\r\n\"'`]|\Z)"
)
_PASSWORD_FILES = (":5432:", ":*:", ":6432:", ":5433:")
_BEFORE_LINE = " \t\n→\"'`"
_USERINFO = (
    r"([^\s/?#@:\"'<>`\\]*)(?::(?!\d{1,5}[/?#,])"
    r"(?:([^\s/\"'<>`\\]+)|(?=[^\s@]{0,255}[0-9!$%*+^~])([^\s/@\"'<>`\\][^\s@\"'<>`\\]{1,255})))?@"
)


_SHORTEST_ENCODED = 32  # characters
# A terminal's sequence for colours and the like, as it is and as it is made visible.
_COLOUR = r"[\x1b␛]\[[0-9;:?]{0,40}[A-Za-z]"


def is_encoded(line: str) -> bool:
    """Tell a line that is one long random word, as in a key's body, which is known for one by its first line alone."""
    word = line.strip().removeprefix("…")
    return len(word) >= _SHORTEST_ENCODED and len(word.split()) == 1 and looks_random(word)


def masked_line(text: str, limit: int) -> str:
    """Give a text on one line of at most `limit` UTF-16 units, its secrets masked before anything is cut."""
    return one_line(mask(text)[0], limit)


def masked(value: Any) -> Any:
    """Give a copy of a JSON value with the secrets in its texts and keys masked; it stays the same kind of value.

    A text is looked at by itself and as the value of its key, for that may say what it is. Without recursion.
    """
    known = _Masked()
    whole: list[Any] = [value]
    # Where a value stands that is not masked yet, and its key if that may say what it is.
    waiting: list[tuple[Any, Any, str]] = [(whole, 0, "")]
    while waiting:
        place, at, key = waiting.pop()
        item = place[at]
        if isinstance(item, str):
            place[at] = known[key, item]
        elif isinstance(item, dict):
            copy: dict[str, Any] = {}
            for name, child in item.items():
                shown = known["", name]
                while shown in copy:
                    shown += "'"
                copy[shown] = child
                waiting.append((copy, shown, name if assigned_secrets.names_a_secret(name) else ""))
            place[at] = copy
        elif isinstance(item, (list, tuple)):
            place[at] = list(item)
            waiting += [(place[at], index, key) for index in range(len(item))]
    return whole[0]


class _Masked(dict[tuple[str, str], str]):
    """The masked texts of a value by key (empty where that says nothing) and text: most stand in it many times."""

    def __missing__(self, named: tuple[str, str]) -> str:
        key, text = named
        clean, count = mask(text)
        if key and not count:
            quoted = f'"{key}": {quick_json.plain(text)}'
            found = assigned_secrets.assigned_secrets(quoted, assigned_secrets.names_in(quoted))
            kind = next((kind for start, _, kind in found if start > len(key) + 3), None)
            clean = text if kind is None else f"[masked: {kind}]"
        self[named] = clean
        return clean


def mask(text: str) -> tuple[str, int]:
    """Give the text with each secret as `[masked: kind]`, and how many there were.

    Known are the tokens of the usual services, private keys, passwords in addresses, and values that are assigned
    to a name such as `password` or `api_key`, also in what was put into JSON, a repr or a URL, twice or in turn.
    Hashes, UUIDs and base64 of anything else stay. The number of lines stays as it was. Takes time that grows with the
    length of the text and no faster.
    """
    looks = _looks(text)
    if not looks:
        return text, 0
    parts: list[str] = []
    rest = 0
    count = 0
    for start, end, kind in _apart(_spans(text, looks)):
        parts += text[rest:start], f"[masked: {kind}]", "\n" * text.count("\n", start, end)
        rest = end
        count += 1
    return "".join(parts) + text[rest:] if count else text, count


def _spans(text: str, looks: Sequence[Callable[[str], Iterator[Span]]]) -> list[Span]:
    """Give where secrets stand in a text as it is, or as it was before it was encoded."""
    import re  # most texts have nothing to look at

    spans: list[Span] = []
    for reading, place in readings(text):
        bare = reading
        if "\x1b" in bare or "␛" in bare:  # a colour's last letter is no part of the word behind it
            bare = re.compile(_COLOUR).sub(lambda found: " " * len(found.group()), bare)
        for look in looks:
            spans += [(place(start), place(end), kind) for start, end, kind in look(bare)]
    return spans


def _looks(text: str) -> list[Callable[[str], Iterator[Span]]]:
    """Give what is to be looked for: that of which a sign is there that no encoding changes."""
    # Dozens of beginnings are looked for, and in long words first; most texts need no pattern for that.
    long = [word for word in text.split() if len(word) >= _SHORTEST_WORD]
    words = "\n".join(long)
    looks: list[Callable[[str], Iterator[Span]]] = []
    if words:
        begun = [
            (prefix, body, kind)
            for kind, prefixes, body, *_ in secret_kinds.TOKENS
            for prefix in prefixes
            if prefix in words
        ]
        if begun:
            looks.append(lambda reading: _tokens(reading, begun))
        around = [row for row in secret_kinds.AROUND_A_SIGN if row[2].lstrip(":") in words]
        if around:
            looks.append(lambda reading: _tokens_around_a_sign(reading, around))
        if any(len(word) >= _SHORTEST_DISCORD and word.count(".") > 1 for word in long):
            looks.append(_discord_tokens)
    if "PRIVATE" in text or "Private-Lines" in text or "LS0tLS1" in text:
        looks.append(private_keys)
    if "@" in text or "%" in text:
        looks.append(_passwords_in_addresses)
    commands = [row for row in secret_kinds.COMMANDS if row[0].split()[0] in text]
    if commands:
        looks.append(lambda reading: _passwords_of_commands(reading, commands))
    files = [sign for sign in _PASSWORD_FILES if sign.strip(":") in text]
    if files:
        looks.append(lambda reading: _password_files(reading, files))
    names = assigned_secrets.names_in(text)
    if names:
        looks.append(lambda reading: assigned_secrets.assigned_secrets(reading, names))
    return looks


def _apart(spans: list[Span]) -> Iterator[Span]:
    """Give the spans in their order, those that overlap as one; of two that begin together the first found names it."""
    last: Span | None = None
    for start, end, kind in sorted(spans, key=lambda span: span[0]):
        if last and start < last[1]:
            last = (last[0], max(last[1], end), last[2])
        else:
            if last:
                yield last
            last = (start, end, kind)
    if last:
        yield last


def _tokens(text: str, tokens: list[tuple[str, str, str]]) -> Iterator[Span]:
    import re

    for prefix, pattern, kind in tokens:
        body = re.compile(pattern)
        at = text.find(prefix)
        while at >= 0:
            found = None
            if not at or not (text[at - 1].isascii() and text[at - 1].isalnum()):
                found = body.match(text, at + len(prefix))
            if found and _told_apart(prefix, found):
                yield at, found.end(), kind
            at = text.find(prefix, found.end() if found else at + len(prefix))


def _tokens_around_a_sign(text: str, rows: Sequence[tuple[str, ...]]) -> Iterator[Span]:
    import re

    for kind, before, sign, body, *_ in rows:
        at = text.find(sign)
        while at >= 0:
            begins = re.compile(before).search(text[max(0, at - 36) : at])
            ends = re.compile(body).match(text, at + len(sign)) if begins else None
            if begins and ends:
                yield at - len(begins[0]), ends.end(), kind
            at = text.find(sign, at + len(sign))


def _discord_tokens(text: str) -> Iterator[Span]:
    import re

    for found in re.compile(secret_kinds.DISCORD).finditer(text):
        before = text[max(0, found.start() - 2) : found.start()]
        is_whole = before in ("-", "\n-") or not re.compile(r"[A-Za-z0-9_-]").match(before[-1:])
        if is_whole and looks_random(found[1]):
            yield *found.span(), "discord token"


def _told_apart(prefix: str, found: re.Match[str]) -> bool:
    """Tell the tokens whose beginning alone proves little from a class name in CSS and from JSON in base64."""
    if prefix == "eyJ":
        return found[1] is not None
    if prefix == "sk-":
        return looks_random(found[0]) or max(map(len, found[0].replace("_", "-").split("-"))) >= _SHORTEST_TOKEN
    return True


def _passwords_in_addresses(text: str) -> Iterator[Span]:
    at = text.find(":/")
    if at < 0 or "@" not in text:
        return
    import re  # most texts have nothing to look at

    pattern = re.compile(_USERINFO)
    while at >= 0:
        slashes = 3 if text.startswith("://", at) else 2
        # One slash is left of two where an address was taken for a path; a drive's letter is no scheme.
        found = pattern.match(text, at + slashes) if slashes == 3 or text[max(0, at - 3) : at].isalpha() else None
        group = 2 if found and found[2] else 3
        if found and found[group] and not is_placeholder(found[group]):
            yield *found.span(group), "password"
        elif found and not found[group] and len(found[1]) >= _SHORTEST_TOKEN and looks_random(found[1]):
            yield *found.span(1), "token"
        at = text.find(":/", at + slashes)


def _passwords_of_commands(text: str, rows: Sequence[tuple[str, ...]]) -> Iterator[Span]:
    for name, option, *_ in rows:
        at = text.find(name)
        while at >= 0:
            import re  # most texts have nothing to look at

            farthest = min(len(text), at + 4096)
            end = text.find("\n", at, farthest)
            end = farthest if end < 0 else end
            for found in re.compile(r"(?<=[ \t])" + option + r"""([^\s"'`]{4,256})""").finditer(
                text, at + len(name) - 1, end
            ):
                if not is_placeholder(found[1]):
                    yield *found.span(1), "password"
            at = text.find(name, end)


def _password_files(text: str, signs: list[str]) -> Iterator[Span]:
    for sign in signs:
        at = text.find(sign)
        while at >= 0:
            import re  # most texts have nothing to look at

            near = text[max(0, at - 256) : at]
            start = max(map(near.rfind, _BEFORE_LINE)) + 1
            line = re.compile(_PGPASS).match(text, at - len(near) + start) if start or at < 256 else None
            if line and not is_placeholder(line[1]):
                yield *line.span(1), "password"
            at = text.find(sign, line.end() if line else at + len(sign))


DEEPEST = 8


_BEHIND, _BEFORE = 5000, 1000


_MOST = 8, 200_000


_BLANKS, _LOGIN = "+-", "+login+"


_LONGEST = 192  # of an escape


_PERCENT = r"%(?:[0-7][0-9a-fA-F]|[89a-fA-F][0-9a-fA-F](?:%[89a-fA-F][0-9a-fA-F]){0,63})"


_FAMILIES = (
    ("\\", r"(\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|033|\r?\n|[nrtbfave0/\\\"'`$]))"),
    ("%", f"({_PERCENT})"),
    ("&", r"(&(?:quot|apos|amp|lt|gt|\#0?3[49]|\#x2[27]);)"),
    ("+", rf"({_PERCENT}|\+)"),  # a form, whose blanks are `+`
)


_PLAIN = {
    "+": " ",
    "\\n": "\n",
    "\\r": "\r",
    "\\t": "\t",
    "\\e": "\x1b",
    "\\033": "\x1b",
    "\\0": "\0",
    "\\\n": "",
    "\\\r\n": "",
    "\\b": "\b",
    "\\f": "\f",
    "\\v": "\v",
    "\\a": "\a",
    "&quot;": '"',
    "&apos;": "'",
    "&amp;": "&",
    "&lt;": "<",
    "&gt;": ">",
    "&#34;": '"',
    "&#39;": "'",
    "&#034;": '"',
    "&#039;": "'",
    "&#x22;": '"',
    "&#x27;": "'",
}


class _Decoded(dict[str, str]):
    """What escapes stand for, each looked at once."""

    def __missing__(self, escape: str) -> str:
        if len(escape) > _LONGEST:
            return "\n"  # what is far from any escape
        if escape[0] == "%":
            plain = bytes.fromhex(escape.replace("%", "")).decode("utf-8", "replace")
        elif escape[1] in "ux":
            plain = chr(int(f"0x{escape[2:]}", 0))
        else:
            plain = escape[1:]
        self[escape] = plain
        return plain


def readings(text: str) -> Iterator[tuple[str, Callable[[int], int]]]:
    """Give the text as it is, then what it was before one encoding, before two and so on, in any order of them.

    Each encoding is undone by itself, for what the others' escapes stand for may be what the text was about.
    With each reading comes a function that gives the place in the text of a place in what was read.
    """
    yield text, int
    is_form = _BLANKS in text or _LOGIN in text
    if not is_form and "\\" not in text and "%" not in text and "&" not in text:
        return
    import re  # most texts have nothing to look at

    plain = _Decoded(_PLAIN)
    left = max(_MOST[0] * len(text), _MOST[1])
    seen = {text}
    whole: list[tuple[str, list[tuple[list[str], list[str]]]]] = [(text, [])]
    for reading, layers in whole:  # grows
        for sign, escape in _FAMILIES if len(layers) < DEEPEST else ():
            if sign not in reading or (sign == "+" and "%" not in reading and not is_form):
                continue
            coded = re.compile(escape).split(reading)
            if len(coded) == 1 or (sign == "+" and max(map(len, coded[1::2])) == 1 and not is_form):  # sums
                continue
            if max(map(len, coded)) > _BEHIND + _BEFORE:
                coded = [piece for literal in range(0, len(coded), 2) for piece in _near(coded, literal)]
            decoded = coded.copy()
            decoded[1::2] = map(plain.__getitem__, coded[1::2])
            text = "".join(decoded)
            if text not in seen and left >= len(text):
                left -= len(text)
                seen.add(text)
                whole.append((text, [*layers, (coded, decoded)]))
                yield text, _places(whole[-1][1])


def _near(pieces: list[str], literal: int) -> list[str]:
    """Give a piece without what is far from any escape, that as an escape of its own; and the escape behind it."""
    piece, escape = pieces[literal], pieces[literal + 1 : literal + 2]
    if len(piece) <= _BEHIND + _BEFORE:
        return [piece, *escape]
    # Lines end in a line break or, where the text is JSON too, in its escape.
    breaks = [at for at in (piece.find(sign, _BEHIND) for sign in ("\n", "\\n")) if at >= 0]
    begins = min(breaks, default=-1) if literal else 0
    ends = max(piece.rfind(sign, 0, -_BEFORE) + len(sign) for sign in ("\n", "\\n")) if escape else len(piece)
    if begins < 0 or ends - begins <= _LONGEST:
        return [piece, *escape]
    return [piece[:begins], piece[begins:ends], piece[ends:], *escape]


def _places(layers: list[tuple[list[str], list[str]]]) -> Callable[[int], int]:
    """Give the function that leads a place in the last of the layers back through all of them."""
    starts: list[tuple[list[int], list[int]]] = []

    def place(at: int) -> int:
        from bisect import bisect_right
        from itertools import accumulate

        if not starts:
            starts.extend(
                (list(accumulate(map(len, coded), initial=0)), list(accumulate(map(len, decoded), initial=0)))
                for coded, decoded in reversed(layers)
            )
        for before, after in starts:
            part = min(bisect_right(after, at), len(after) - 1) - 1
            # Within a piece that is the same in both, or at the beginning or behind the end of an escape.
            inside = at - after[part]
            at = before[part] + inside if part % 2 == 0 or not inside else before[part + 1]
        return at

    return place
