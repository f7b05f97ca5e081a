"""How Claude Code imports a file into its memory, and the line that does it in a file of the user's. Pure.

All of it was seen in Claude Code 2.1.330; the end-to-end tests look at it again.
"""

from __future__ import annotations

import re

_BOM = b"\xef\xbb\xbf"
_ENDINGS = frozenset(
    (
        *("", ".md", ".txt", ".text", ".json", ".yaml", ".yml", ".toml", ".csv", ".html", ".xml", ".rst", ".adoc"),
        *(
            ".asciidoc",
            ".org",
            ".tex",
            ".log",
            ".sql",
            ".proto",
            ".graphql",
            ".diff",
            ".patch",
            ".ini",
            ".cfg",
            ".conf",
        ),
    )
)
"""How the names of files end that the host imports; it passes over `.markdown`, `.mdx`, `.jsonl` and what it knows
not. Source code is imported too, but no artifact is one."""
_REFUSED = re.compile(r"[*#\\<>`\x00-\x1f\x7f-\x9f\ud800-\udfff]|[^\S ]|\]\(|~~")
_EMPHASIS = re.compile(r"(?<!\w)_.*_(?!\w)|(?<!\w)__|__(?!\w)")
_IMPORT = re.compile(r"@(?<!\S@)((?:[^\s\\]|\\ )+)")
_MOST_IMPORTS = 200
_COMMENT = re.compile(r"^ {0,3}<!--", re.MULTILINE)
_LONGEST_FRONT = 2000


def import_line(path: str) -> str:
    """Give the line that imports a file. path: relative to the importing file. Empty: no line can carry it.

    The line is Markdown to the host, which reads emphasis, code and HTML in it, and takes `#` for a fragment.
    """
    name = path.rpartition("/")[2]
    ending = name[name.rfind(".") :].lower() if name.rfind(".") > 0 else ""
    if ending not in _ENDINGS or _REFUSED.search(path) or _EMPHASIS.search(path):
        return ""
    return "@" + path.replace(" ", "\\ ")


def imported_by(text: str) -> list[str] | None:
    """Give the paths that a text would import by itself, each once; None for more than anybody looks at."""
    found: dict[str, None] = {}
    for match in _IMPORT.finditer(text):
        path = match.group(1).partition("#")[0].replace("\\ ", " ")
        if path:
            found[path] = None
        if len(found) > _MOST_IMPORTS:
            return None
    return list(found)


def front_matter(text: str) -> str | None:
    """Give what stands between `---` at a text's beginning, which the host leaves out; None where it is too long."""
    if not re.match(r"---[ \t]*\n", text):
        return ""
    end = re.search(r"^---.*$", text[3:], re.MULTILINE)
    if end is None:
        return ""
    found = text[: 3 + end.end()]
    return found if len(found) <= _LONGEST_FRONT else None


def has_comments(text: str) -> bool:
    """Tell whether a text may hold HTML comments of the kind that the host leaves out."""
    return _COMMENT.search(text) is not None


def addition(before: bytes, line: str) -> bytes:
    """Give what is added at the end of a file so that a paragraph of its own imports another."""
    if before in (b"", _BOM):
        return f"{line}\n".encode()
    end = b"\r\n" if before.endswith(b"\r\n") or (b"\r\n" in before and not before.endswith(b"\n")) else b"\n"
    return (b"" if before.endswith(b"\n") else end) + end + line.encode() + end


def has_line(content: bytes, line: str) -> bool:
    """Tell whether a file has the line."""
    return _at(content, line) is not None


def without(content: bytes, line: str, added: bytes) -> bytes:
    """Take away what was added at the end; where that was edited since, the line alone."""
    if added and content.endswith(added):
        return content[: -len(added)]
    place = _at(content, line)
    return content if place is None else content[: place[0]] + content[place[1] :]


def _at(content: bytes, line: str) -> tuple[int, int] | None:
    """Find the last line of this text; gives where it begins and where the next one does."""
    found = None
    start = 3 if content.startswith(_BOM) else 0
    for one in content[start:].splitlines(keepends=True):
        if one.strip() == line.encode():
            found = start, start + len(one)
        start += len(one)
    return found
