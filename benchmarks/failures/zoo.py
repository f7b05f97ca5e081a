"""Read the cases of the zoo and its recordings, and find what was planted in an output.

`cases/TOOL.case` is a text: a head, then the eight cases, each with its files.

    version: gcc --version            the first line of what it prints is recorded
    setup: COMMAND                    before each case, not recorded; so is teardown, after it
    -- pom.xml                        a file of each case that has none of this name
    == one: what the case is          a kind of KINDS, and a note where it is not the plain one
    $ gcc -c src/stock.c              the command (several lines are one script)
    exit: 1                           where another code than the kind's is due
    verdict: word|word                the last line with all these words matters
    must: word|word                   the first line with all these words matters
    -- src/stock.c                    a file; `-- src/part_§.c *200` makes 200, with § their numbers
        return missing_total;  «missing_total|undeclared»
    %% 30                             a block within a file, 30 times, up to a line `%%`

A mark at the end of a line plants a mistake there: `«words»`: the output must bring the file, the line and the words
together; `«@»`: the place alone; `«=words»`: the words alone (a test's name, a message without a place);
`«#words»`: the line's number and the words, with the file in a line above. The recorder takes the marks out before
the tool runs, and refuses a recording that misses a planted mistake. A file OUTPUT stands for a tool that cannot be
run here: what the tool would print was written by us, and the recording says so.

Whoever writes rules for the reducer reads neither the cases nor the recordings of the tools in `aside.txt`.
"""

from __future__ import annotations

import json
import lzma
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
KINDS = ("one", "ten", "crash", "timeout", "warnings", "flood", "unicode", "huge")
NEAR = 20  # lines between a message and its place
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\]8;[^\x1b\x07]*(?:\x1b\\|\x07)")
_MARK = re.compile(r"\s*«([^»]*)»[ \t]*$")


@dataclass
class Plant:
    """A planted mistake. mode: "" (place and words together), "@", "=", "#", or "last" for a verdict."""

    words: list[str]
    mode: str = ""
    file: str = ""
    line: int = 0


@dataclass
class Case:
    """One failure: what is run, on which files, and what was planted in them."""

    kind: str
    note: str
    command: str = ""
    exit: int | None = None
    files: dict[str, str] = field(default_factory=dict)
    plants: list[Plant] = field(default_factory=list)


@dataclass
class Tool:
    """A tool's cases. head: version, setup and teardown."""

    name: str
    head: dict[str, str]
    cases: list[Case]


def names() -> list[str]:
    """Return the tools of the zoo."""
    return (HERE / "tools.txt").read_text(encoding="utf-8").split()


def aside() -> set[str]:
    """Return the tools that the draw kept aside."""
    return set((HERE / "aside.txt").read_text(encoding="utf-8").split())


# ---- Cases.


def tool(name: str) -> Tool:
    """Read a tool's cases."""
    text = (HERE / "cases" / f"{name}.case").read_text(encoding="utf-8")
    top, *parts = re.split(r"^== ", text, flags=re.MULTILINE)
    top, *shared = re.split(r"^-- ", top, flags=re.MULTILINE)
    head: dict[str, str] = {}
    for line in top.splitlines():
        key, _, value = line.partition(": ")
        if value:
            head[key] = f"{head[key]}\n{value}" if key in head else value
    cases = [_case(part, shared) for part in parts]
    if tuple(case.kind for case in cases) != KINDS:
        raise ValueError(f"{name}: {[case.kind for case in cases]}")
    return Tool(name, head, cases)


def _case(text: str, shared: list[str]) -> Case:
    top, *files = re.split(r"^-- ", text, flags=re.MULTILINE)
    title, _, rest = top.partition("\n")
    kind, _, note = title.partition(":")
    case = Case(kind.strip(), note.strip())
    for line in rest.splitlines():
        key, _, value = line.partition(" ")
        if key == "$":
            case.command += f"\n{value}" if case.command else value
        elif key == "exit:":
            case.exit = int(value)
        elif key in ("verdict:", "must:"):
            case.plants.append(Plant(value.split("|"), "last" if key == "verdict:" else "="))
    for part in [*shared, *files]:
        named, _, body = part.partition("\n")
        path, _, times = named.partition(" *")
        if not times:
            _add_file(case, path, body)
        for number in range(1, int(times or 0) + 1):
            _add_file(case, _numbered(path, number, int(times)), _numbered(body, number, int(times)))
    return case


def _numbered(text: str, number: int, count: int) -> str:
    return text.replace("§", f"{number:0{max(3, len(str(count)))}}")


def _add_file(case: Case, path: str, body: str) -> None:
    lines: list[str] = []
    for line in _unrolled(body.rstrip("\n").split("\n")):
        found = _MARK.search(line)
        if found is None:
            lines.append(line)
            continue
        lines.append(line[: found.start()])
        for mark in found[1].split("&"):
            mode = mark[:1] if mark[:1] in ("@", "=", "#") else ""
            words = [word for word in mark.removeprefix(mode).split("|") if word]
            case.plants.append(Plant(words, mode, path, len(lines)))
    case.files[path] = "\n".join(lines) + "\n"


def _unrolled(lines: list[str]) -> list[str]:
    whole: list[str] = []
    while lines:
        line = lines.pop(0)
        if not line.startswith("%% "):
            whole.append(line)
            continue
        end, count = lines.index("%%"), int(line[3:])
        block, lines = lines[:end], lines[end + 1 :]
        whole += [_numbered(inner, number, count) for number in range(1, count + 1) for inner in block]
    return whole


# ---- Truth.


def truth(case: Case, output: str) -> list[tuple[int, list[str]]]:
    """Return the lines of an output that matter: their index, and what was planted that each carries.

    Raises ValueError where a planted mistake is not in the output.
    """
    lines = [ANSI.sub("", line) for line in output.split("\n")]
    must: dict[int, list[str]] = {}
    missing = []
    for plant in case.plants:
        hits = _lines_of(plant, lines)
        if not hits:
            missing.append(f"{plant.mode or 'at'} {plant.file}:{plant.line} {plant.words}")
        for index, needs in hits:
            must[index] = sorted({*must.get(index, ()), *needs})
    if missing:
        raise ValueError("not in the output: " + "; ".join(missing[:12]))
    return sorted(must.items())


def _lines_of(plant: Plant, lines: list[str]) -> list[tuple[int, list[str]]]:
    spoken = [n for n, line in enumerate(lines) if all(word in line for word in plant.words)]
    if plant.mode in ("=", "last"):
        return [(spoken[-1 if plant.mode == "last" else 0], plant.words)] if spoken else []
    name, number = Path(plant.file).name, str(plant.line)
    if plant.mode == "#":
        for n in (n for n in spoken if _has_number(lines[n], number)):
            above = next((up for up in range(n - 1, -1, -1) if name in lines[up]), None)
            if above is not None:
                return [(n, [number, *plant.words]), (above, [name])]
        return []
    places = [n for n, line in enumerate(lines) if _has_number(line.partition(name)[2], number)]
    if plant.mode == "@":
        return [(places[0], [name, number])] if places else []
    both = sorted(set(spoken) & set(places))
    if both:
        return [(both[0], [name, number, *plant.words])]
    pairs = [(abs(word - place), word, place) for word in spoken for place in places if abs(word - place) <= NEAR]
    if not pairs:
        return []
    _, word, place = min(pairs)
    return [(word, plant.words), (place, [name, number])]


def _has_number(text: str, number: str) -> bool:
    return re.search(rf"(?<!\d){number}(?!\d)", text) is not None


def carries(text: str, needs: list[str]) -> bool:
    """Tell whether a line carries all that was planted in it."""
    return all(_has_number(text, need) if need.isdigit() else need in text for need in needs)


# ---- Recordings.


def load(name: str) -> dict[str, Any] | None:
    """Return a tool's recording, None where there is none."""
    path = HERE / "recordings" / f"{name}.json.xz"
    return dict(json.loads(lzma.decompress(path.read_bytes()))) if path.exists() else None


def save(name: str, recording: dict[str, Any]) -> int:
    """Write a tool's recording and return its size in bytes."""
    packed = lzma.compress(json.dumps(recording, ensure_ascii=False).encode(), preset=9 | lzma.PRESET_EXTREME)
    (HERE / "recordings" / f"{name}.json.xz").write_bytes(packed)
    return len(packed)
