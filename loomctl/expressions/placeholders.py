"""Placeholders in paths, prompts and shell commands, and the portable form in which paths are stored (D8, D9).

In a shell command each value is quoted for the place where it stands, so that it stays one word. In a place whose
quoting cannot be told for certain (a substitution, a here-document, a comment), a value that needs quotes is refused.
"""

from __future__ import annotations

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from loomctl.kit.problems import Problem

NAMES = (
    "project_root",
    "run_id",
    "plan_id",
    "work_id",
    "run_suffix",
    "run_dir",
    "state_path",
    "plan_path",
    "plugin_root",
)
TASK = "task"  # of a step that goes through a task list (D65)
_ANGLED = ("project_root", "run_id")
_FIRST = frozenset("abcdefghijklmnopqrstuvwxyz")
_REST = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")


class Expansion(NamedTuple):
    """text: with every known placeholder replaced; missing: names that are unknown or empty, in order, once each."""

    text: str
    missing: tuple[str, ...]


def expand(text: str, values: Mapping[str, str | None]) -> Expansion:
    """Replace every `{name}` (and `<project_root>`, `<run_id>`) by its value; `{{name}}` becomes `{name}` (D8).

    Braces around anything but a lower-case name are text. What cannot be replaced stays as it is and is named.
    """
    missing: list[str] = []

    def put(opening: str, name: str, closing: str, braces: int) -> str:
        if braces >= 2:
            return opening[1:] + name + closing[1:]
        value = values.get(name)
        if not value:
            if name not in missing:
                missing.append(name)
            return opening + name + closing
        return opening[1:] + value + closing[1:]

    return Expansion(_rewrite(text, put), tuple(missing))


def escape(text: str) -> str:
    """Give the text that `expand` turns back into `text`, whatever the values."""
    return _rewrite(text, lambda opening, name, closing, _: opening[0] + opening + name + closing + closing[0])


def used(text: str) -> tuple[str, ...]:
    """Name the placeholders that `expand` would replace, in order, once each."""
    return expand(text, {}).missing


def _rewrite(text: str, put: Callable[[str, str, str, int], str]) -> str:
    """Copy `text`, handing each bracketed name to `put(opening run, name, closing run, pairs)`; one pass."""
    out: list[str] = []
    at, end = 0, len(text)
    curly = angle = -1  # the next of each kind, looked for only once it is passed: linear whatever the text
    while at < end:
        character = text[at]
        if character not in "{<":
            curly = _next(text, "{", at) if curly < at else curly
            angle = _next(text, "<", at) if angle < at else angle
            following = min(curly, angle)
            out.append(text[at:following])
            at = following
            continue
        start = at
        while at < end and text[at] == character:
            at += 1
        name_at = at
        if at < end and text[at] in _FIRST:
            while at < end and text[at] in _REST:
                at += 1
        name = text[name_at:at]
        close_at = at
        closer = "}" if character == "{" else ">"
        if name:
            while at < end and text[at] == closer:
                at += 1
        pairs = min(name_at - start, at - close_at)
        if name and pairs and (character == "{" or name in _ANGLED):
            surplus = (name_at - start) - pairs
            tail = (at - close_at) - pairs
            out.append(text[start : start + surplus])
            out.append(put(text[start + surplus : name_at], name, text[close_at : close_at + pairs], pairs))
            out.append(closer * tail)
        else:
            out.append(text[start:at])
    return "".join(out)


def _next(text: str, character: str, start: int) -> int:
    place = text.find(character, start)
    return len(text) if place < 0 else place


def to_portable(path: str, project_root: str, *, run_dir: str = "") -> str:
    """Store a path without this machine in it: `{run_dir}/…` or `{project_root}/…` where it lies inside (D9).

    path: absolute, or relative to the project root. run_dir comes first: from a linked worktree it is not below the
    project root. Any other path is stored as it is. `expand` gives the absolute path back.
    """
    if not is_absolute(path):
        return "{project_root}/" + escape(path)
    for folder, name in ((run_dir, "{run_dir}"), (project_root, "{project_root}")):
        root = folder.rstrip("/")
        if path == root:
            return name
        if folder and path.startswith(root + "/"):
            return f"{name}/{escape(path[len(root) + 1 :])}"
    return escape(path)


# Each candidate is looked for on disk, so a path made of a thousand components may not ask for a thousand looks.
LONGEST_SUFFIX = 32


def is_absolute(path: str) -> bool:
    r"""Tell whether a path is absolute on any system: `/x`, `C:\x`, `\\server\x`."""
    return path.startswith(("/", "\\\\")) or (path[1:2] == ":" and path[:1].isalpha() and path[2:3] in ("/", "\\"))


def parts_of(path: str) -> list[str]:
    r"""Split a path into components, by `\` too where it is a Windows path."""
    windows = path.startswith("\\\\") or (path[1:2] == ":" and path[:1].isalpha())
    plain = path.replace("\\", "/") if windows else path
    return [part for part in plain.split("/") if part not in ("", ".")]


def candidates(path: str, recorded_roots: Iterable[str]) -> Iterator[str]:
    """Give places relative to the project root, the likeliest first.

    Each recorded project root as a prefix; the whole path below the root; then its suffixes, the longest first, of two
    to LONGEST_SUFFIX components. Nothing with `..` in it is offered.
    """
    parts = parts_of(path)
    if not parts or ".." in parts:
        return
    for root in recorded_roots:
        below = below_recorded(path, (root,))
        if below is not None:
            yield below
    if path.startswith("/"):
        yield "/".join(parts)
    for start in range(max(1, len(parts) - LONGEST_SUFFIX), len(parts) - 1):
        yield "/".join(parts[start:])


def below_recorded(path: str, recorded_roots: Iterable[str]) -> str | None:
    """Give a path relative to the first recorded project root that it lies below, or None."""
    parts = parts_of(path)
    for root in recorded_roots:
        head = parts_of(root)
        if head and ".." not in parts and parts[: len(head)] == head and len(parts) > len(head):
            return "/".join(parts[len(head) :])
    return None


# FABER's own run fills these in; here the assistant does, so they stay in the text as they are (D5).
LEFT_TO_ASSISTANT = ("pr_number", "pr_id")


def placeholder_problems(
    text: str | None, where: str, *, optional: bool = False, also: Sequence[str] = ()
) -> list[Problem]:
    """Find placeholders that no run can fill; what is optional goes without, with a warning (D8).

    also: names that are known in this place alone.
    """
    from loomctl.kit.problems import error, nearest, warning

    found: list[Problem] = []
    for name in used(text or ""):
        if name in NAMES or name in also:
            continue
        if name == TASK:
            message = "{task} has a value only in a step with for_each"
            found.append(error("UNRESOLVED_PLACEHOLDER", where, message, "for_each: artifacts.spec_path"))
            continue
        literal = "{{" + name + "}}"
        if name in LEFT_TO_ASSISTANT:
            message = f"Loom has no value for {{{name}}} and leaves it for the assistant to fill in"
            found.append(warning("UNRESOLVED_PLACEHOLDER", where, message, f"to silence this, write {literal}"))
            continue
        meant = nearest(name, NAMES)
        ask = f"did you mean {{{meant}}}? " if meant else ""
        hint = f"{ask}write {literal} for literal braces; the placeholders are: {', '.join(NAMES)}"
        message = f"unknown placeholder {{{name}}}"
        if optional:
            found.append(warning("UNRESOLVED_PLACEHOLDER", where, f"{message}; Loom leaves this artifact out", hint))
        else:
            found.append(error("UNRESOLVED_PLACEHOLDER", where, message, hint))
    return found


_PLAIN_SIGNS = frozenset("_-./:,+@%=")
_IN_DOUBLE_QUOTES = frozenset('\\"$`')
# What ends the places that can be told: behind it a quote may mean something else.
_UNCERTAIN = ("$(", "${", "`", "<<", "$'")
_VARIABLE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")


class ShellText(NamedTuple):
    """text: what the shell is given; missing: placeholders without a value; refused: those that cannot be quoted."""

    text: str
    missing: tuple[str, ...]
    refused: tuple[str, ...]


def expand_in_shell(script: str, values: Mapping[str, str | None]) -> ShellText:
    """Replace every placeholder of a shell command by its value, quoted where it has to be.

    The script and the values hold no NUL; what holds one is no command, and every placeholder in it is refused.
    """
    names = used(script)
    if "\0" in script or any("\0" in (values.get(name) or "") for name in names):
        return ShellText(script, (), names or ("NUL",))
    marked = expand(script, {name: f"\0{name}\0" for name in names if values.get(name)})
    out: list[str] = []
    refused: list[str] = []
    quote = ""  # the quote that is open: ' or " or none; ? where that cannot be told any more
    pieces = marked.text.split("\0")
    for number, piece in enumerate(pieces):
        if number % 2 == 0:
            out.append(piece)
            quote = _after(piece, quote, starts_word=number == 0)
            continue
        value = values.get(piece) or ""
        if is_plain(value):
            out.append(value)
        elif quote == "?":
            refused.append(piece)
        else:
            out.append(_quoted(value, quote))
    return ShellText("".join(out), marked.missing, tuple(dict.fromkeys(refused)))


def is_plain(value: str) -> bool:
    """Tell whether a shell takes nothing out of a value but its characters, wherever it stands."""
    return not value.startswith(("-", "=")) and all(
        character.isalnum() or character in _PLAIN_SIGNS for character in value
    )


def _quoted(value: str, quote: str) -> str:
    if quote == "'":
        return value.replace("'", "'\\''")
    if quote == '"':
        return "".join("\\" + character if character in _IN_DOUBLE_QUOTES else character for character in value)
    return "'" + value.replace("'", "'\\''") + "'"


def _after(piece: str, quote: str, *, starts_word: bool) -> str:
    """Give the quote that is open behind a piece of the script, from the one that is open before it."""
    at, fresh = 0, starts_word
    while at < len(piece) and quote != "?":
        character = piece[at]
        if quote == "'":
            quote = "" if character == "'" else quote
        elif character == "\\":
            at += 1
            if at >= len(piece):  # it would escape the value's own first character
                return "?"
        elif (end := _end_of_variable(piece, at)) > at:
            at = end
        elif piece.startswith(_UNCERTAIN, at) or (character == "#" and not quote and fresh):
            return "?"
        elif character == quote:
            quote = ""
        elif not quote and character in "'\"":
            quote = character
        fresh = not quote and character in " \t\n;&|()"
        at += 1
    return quote


def _end_of_variable(piece: str, at: int) -> int:
    """Give the place of the brace that ends a plain `${NAME}`, which begins at `at`; -1 for anything else."""
    if not piece.startswith("${", at):
        return -1
    end = at + 2
    while end < len(piece) and piece[end] in _VARIABLE:
        end += 1
    return end if piece.startswith("}", end) else -1
