"""Reading one file that may be read, as an artifact: bounded, as text or JSON (D16)."""

from __future__ import annotations

import os

from loomctl.kit import digests, files
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple

WARN_BYTES = 100 * 1024
REFUSE_BYTES = 1024 * 1024
# A summary is made of a file larger than what is given in full, but not of any file.
SUMMARY_BYTES = 16 * 1024 * 1024


class Reading(NamedTuple):
    """What was found of one artifact.

    text: what a priming gives (None where there is none); sha256: of that text; bytes: of the source, as far as known;
    path: as shown to people; problem: a reason code (`missing`, `path_escape`, `too_large`, `unparsable`, …) or empty;
    message: the problem in words; kind: json, markdown, digest or text; rendered: a run's own file, shown for reading
    and not as its bytes; of: what it is of where it is no file's content (`priming.packing.OF`);
    warnings: `(code, message)`.
    """

    text: str | None = None
    sha256: str = ""
    bytes: int | None = None
    path: str = ""
    absolute: str = ""
    problem: str = ""
    message: str = ""
    kind: str = "text"
    rendered: bool = False
    of: str = ""
    warnings: tuple[tuple[str, str], ...] = ()


def read_file(path: str, kind: str, *, summary: bool = False) -> Reading:
    """Read a file that may be read. Raises OSError and LoomError."""
    size = os.stat(path).st_size
    limit = SUMMARY_BYTES if summary else REFUSE_BYTES
    if size > limit:
        why = f"{size:,} bytes; {limit:,} is the most that is read" + ("" if summary else " without a summary strategy")
        return Reading(bytes=size, problem="too_large", message=why)
    data = files.read_bytes(path, limit=limit)
    warnings: list[tuple[str, str]] = []
    if len(data) > WARN_BYTES:
        warnings.append(("LARGE_ARTIFACT", f"{len(data):,} bytes; over {WARN_BYTES:,} it is seldom given in full"))
    if kind == "json":
        try:
            files.parse_json(data, where=path)
        except LoomError as error:
            return Reading(bytes=len(data), problem="unparsable", message=error.why or error.what)
        text = files.text_of(data)
    elif b"\0" in data:
        return Reading(bytes=len(data), problem="binary", message="it holds NUL bytes; only text is given")
    else:
        text = files.text_of(data, "replace")
        if "�" in text and b"\xef\xbf\xbd" not in data:
            warnings.append(("NOT_UTF8", "bytes that are not UTF-8 are shown as �"))
    return Reading(text, digests.of_text(text), len(data), kind=kind, warnings=tuple(warnings))
