"""Task lists: the check boxes of a Markdown file, found again after edits, ticked one byte at a time (D65). Pure.

The rules are GitHub's: a list item that opens with `[ ]` or `[x]` and a text. Boxes in code, comments and quotations
are none. Every byte of the file that is not a tick stays as it is, a broken encoding and mixed line ends included.
"""

from __future__ import annotations

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

LONGEST = 2000
"""Characters of a task's text that a run keeps; the rest stands in the file."""
_BLANKS = " \t"
_BULLETS, _NUMBER_ENDS, _DIGITS = "-*+", ".)", "0123456789"
_STARTS = frozenset(_BULLETS + _DIGITS + "#`~<>=")
_LONGEST_NUMBER = 9
_CODE_INDENT, _TAB = 4, 4
_DEEPEST_HEADING = 6
_SHORTEST_RULE = 3
_FENCES = ("```", "~~~")
_COMMENT, _COMMENT_END = "<!--", "-->"


class Task(NamedTuple):
    """One check box. text: its line and those indented below it; line: in the file, from 1; done: ticked.

    mark: the index of the character between its brackets; nth: how many boxes of the same text stand before it.
    """

    text: str
    line: int
    done: bool
    mark: int
    nth: int


class TaskList(NamedTuple):
    """The boxes of a file or of one section of it, in the order in which they are worked on; text: the whole file."""

    text: str
    tasks: Sequence[Task]

    def next(self) -> Task | None:
        """Give the first open task."""
        return next((task for task in self.tasks if not task.done), None)

    def noted(self, task: Task) -> dict[str, Any]:
        """Give what a visit keeps of its task, enough to find it again in an edited file.

        number: which one it is for people, from 1: those that are ticked come first.
        """
        return {
            "text": task.text[:LONGEST],
            "number": sum(other.done for other in self.tasks if other is not task) + 1,
            "of": len(self.tasks),
            "line": task.line,
            "nth": task.nth,
            "between": self._neighbours(task),
        }

    def again(self, noted: Mapping[str, Any]) -> Task | None:
        """Find a task again; None where nothing tells which it is.

        By its text; else by its first line, if no other box has it; else, where it was reworded, by its line and the
        tasks around it.
        """
        text = str(noted["text"])
        same = [task for task in self.tasks if task.text[:LONGEST] == text]
        if same:
            return next((task for task in same if task.nth == noted.get("nth")), same[-1])
        head = text.partition("\n")[0]
        same = [task for task in self.tasks if task.text[:LONGEST].partition("\n")[0] == head]
        if len(same) == 1:
            return same[0]
        there = next((task for task in self.tasks if task.line == noted.get("line")), None)
        return there if there is not None and self._neighbours(there) == noted.get("between") else None

    def ticked(self, task: Task, mark: str = "x") -> bytes:
        """Give the file's bytes with one box ticked, or with a blank as its mark opened, and nothing else changed."""
        return (self.text[: task.mark] + mark + self.text[task.mark + 1 :]).encode("utf-8", "surrogateescape")

    def _neighbours(self, task: Task) -> list[str]:
        at = self.tasks.index(task)
        before = self.tasks[at - 1].text if at else ""
        after = self.tasks[at + 1].text if at + 1 < len(self.tasks) else ""
        return [before[:LONGEST], after[:LONGEST]]


def read(data: bytes, section: str | None = None) -> TaskList | None:
    """Read the task list of a Markdown file, or of the section under one heading; None where there is no such heading.

    A task with boxes indented below it comes after them, as it is done when they are.
    """
    text = data.decode("utf-8", "surrogateescape")
    reader, at = _Reader(section), 0
    lines = text.replace("\r\n", " \n").replace("\r", "\n").split("\n")  # each where it stands in the text
    for number, raw in enumerate(lines, 1):
        mark = 1 if number == 1 and raw.startswith("\ufeff") else 0
        reader.line(raw[mark:], number, at + mark)
        if reader.is_over:
            break
        at += len(raw) + 1
    reader.leave(-1)
    return TaskList(text, _numbered(reader.boxes)) if reader.is_inside else None


def _numbered(boxes: Sequence[_Box]) -> list[Task]:
    seen: dict[str, int] = {}
    tasks: list[Task] = []
    for box in boxes:
        text = _clean("\n".join(box.texts)).strip()
        if text:
            nth = seen[text] = seen.get(text, -1) + 1
            tasks.append(Task(text, box.line, box.done, box.mark, nth))
    return tasks


def _clean(text: str) -> str:
    """Give a text that JSON, a prompt and a shell can hold."""
    if not text.isascii():
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return text.replace("\0", "\ufffd")


# ---- The blocks of Markdown, as far as they say what is a box.


class _Box(NamedTuple):
    line: int
    done: bool
    mark: int
    texts: list[str]


class _Item(NamedTuple):
    """An open list item. column: where its content begins; box: whose text its lines are; own: it is that box's."""

    column: int
    box: _Box | None
    own: bool


class _Reader:
    """Reads a file line by line. boxes: those of the section, each after the boxes below it."""

    def __init__(self, section: str | None) -> None:
        self._wanted = None if section is None else _folded(section)
        self.is_inside, self.is_over = section is None, False
        self.boxes: list[_Box] = []
        self._level = 0  # of the section's heading
        self._items: list[_Item] = []
        self._block, self._least = "", 0  # what ends the code or comment; the column to the left of which it is over
        self._after_blank, self._paragraph = True, ""

    def line(self, raw: str, number: int, at: int) -> None:
        """Read a line, which begins at an index of the file."""
        body = raw.strip(" \t\r")
        if not body:
            self._after_blank, self._paragraph = True, ""
            return
        indent = len(raw) - len(raw.lstrip(_BLANKS))
        column = _columns(raw[:indent])
        if self._block and column >= self._least:
            self._within_block(body, raw, indent)
            return
        self._block = ""
        if body[0] not in _STARTS or not self._structure(body, raw, column, number, at + indent):
            if self._after_blank:
                self.leave(column)
            self._add(raw, indent)
            self._paragraph = "" if self._items or column >= _CODE_INDENT else body
        self._after_blank = False

    def leave(self, column: int) -> None:
        """Close the list items that a line at a column is none of."""
        items = self._items
        while items and column < items[-1].column:
            item = items.pop()
            if item.own and item.box is not None:
                self.boxes.append(item.box)

    def _structure(self, body: str, raw: str, column: int, number: int, at: int) -> bool:
        """Read a line that begins a block; False: it is text."""
        first, indent = body[0], len(raw) - len(raw.lstrip(_BLANKS))
        if first in "=-" and self._paragraph and column < _CODE_INDENT and not body.strip(first):
            self._heading(1 if first == "=" else 2, self._paragraph)
            return True
        fence = _fence(body)
        heading = _heading(body) if first == "#" else None
        is_rule = first in "-*" and _is_rule(body)
        width = _bullet(body) if not is_rule and (first in _BULLETS or first in _DIGITS) else 0
        comment = first == "<" and body.startswith(_COMMENT)
        if not (fence or heading or width or comment or is_rule or first == ">"):
            return False
        self.leave(column)
        outer = self._items[-1] if self._items else None
        base = outer.column if outer is not None else 0
        if column - base >= _CODE_INDENT:
            self._add(raw, indent)
            return True
        self._paragraph = ""
        if heading and outer is None:
            self._heading(*heading)
        elif fence or comment:
            self._block, self._least = fence or _COMMENT_END, base
            self._block = "" if comment and _COMMENT_END in body else self._block
        elif width:
            self._item(body, width, column, number, at, outer)
        if outer is not None and not comment and not (width and self._items[-1].own):
            self._add_to(outer, raw, indent)
        return True

    def _item(self, body: str, width: int, column: int, number: int, at: int, outer: _Item | None) -> None:
        rest = body[width:]
        gap = len(rest) - len(rest.lstrip(_BLANKS))
        said, after = rest[gap : gap + 3], rest[gap + 3 :]
        is_code = gap > _CODE_INDENT
        content = column + width + (1 if is_code or not rest else _columns(rest[:gap], column + width))
        if self.is_inside and not is_code and said in ("[ ]", "[x]", "[X]") and (not after or after[0] in _BLANKS):
            box = _Box(number, said != "[ ]", at + width + gap + 1, [after.strip()])
            self._items.append(_Item(content, box, own=True))
        else:
            self._items.append(_Item(content, outer.box if outer is not None else None, own=False))

    def _within_block(self, body: str, raw: str, indent: int) -> None:
        if self._block == _COMMENT_END:
            self._block = "" if _COMMENT_END in body else self._block
            return
        self._add(raw, indent)
        if body.startswith(self._block) and not body.strip(self._block[0]):
            self._block = ""

    def _heading(self, level: int, title: str) -> None:
        self._paragraph = ""
        if self._wanted is None:
            return
        if self.is_inside:
            self.is_over = level <= self._level
        elif _folded(title) == self._wanted:
            self.is_inside, self._level = True, level

    def _add(self, raw: str, indent: int) -> None:
        if self._items:
            self._add_to(self._items[-1], raw, indent)

    def _add_to(self, item: _Item, raw: str, indent: int) -> None:
        if item.box is not None:
            item.box.texts.append(raw[min(indent, item.column) :].rstrip())


def _columns(blanks: str, start: int = 0) -> int:
    if "\t" not in blanks:
        return len(blanks)
    column = start
    for character in blanks:
        column += _TAB - column % _TAB if character == "\t" else 1
    return column - start


def _fence(body: str) -> str:
    """Give the marks that end the code which a line begins; empty for every other line."""
    if not body.startswith(_FENCES):
        return ""
    rest = body.lstrip(body[0])
    return "" if body[0] == "`" and "`" in rest else body[: len(body) - len(rest)]


def _heading(body: str) -> tuple[int, str] | None:
    title = body.lstrip("#")
    level = len(body) - len(title)
    if level > _DEEPEST_HEADING or title[:1] not in ("", *_BLANKS):
        return None
    bare = title.rstrip("#")
    return level, (bare if bare[-1:] in ("", *_BLANKS) else title).strip()


def _folded(title: str) -> str:
    return " ".join(title.casefold().split())


def _bullet(body: str) -> int:
    """Give how wide the mark of a list item is, without the blanks behind it; 0 for what is none."""
    digits = len(body) - len(body.lstrip(_DIGITS))
    if digits > _LONGEST_NUMBER or (digits and body[digits : digits + 1] not in tuple(_NUMBER_ENDS)):
        return 0
    width = digits + 1
    return width if body[width : width + 1] in ("", *_BLANKS) else 0


def _is_rule(body: str) -> bool:
    """Tell whether a line is a thematic break: three marks or more, and blanks."""
    return not body.strip(body[0] + _BLANKS) and body.count(body[0]) >= _SHORTEST_RULE
