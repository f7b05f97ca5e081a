"""Putting large outputs into files, byte for byte, and getting them back (D47)."""

from __future__ import annotations

import os

from loomctl.kit import digests, files, ids
from loomctl.kit.errors import LoomError, quoted
from loomctl.runs.tools import output_files

FOLDER = output_files.FOLDER
LARGEST = 1 << 30


def name_of(step_id: str, ext: str) -> tuple[str, str]:
    """Give a file's name and its ending, fit for every disk whatever the step's id and the ending are."""
    name = step_id if ids.is_fit(step_id) else f"step-{digests.of_text(step_id)[:16]}"
    return name, ext if ext.isalnum() and ext.isascii() and len(ext) < 9 else "txt"


class DataOffloader:
    """Keeps texts below `workspace`, each in a file of its own: written whole before it is named, never written over.

    A reference is the file's path below the workspace, `outputs/toolu_01.log`. Two texts under one name get two files;
    the same text again gets the file that it has.
    """

    def __init__(self, workspace: str | os.PathLike[str]) -> None:
        self.workspace = os.fspath(workspace)

    def offload(self, data: str | bytes, step_id: str, ext: str = "json") -> str:
        """Write the data and give its reference. Raises OSError where it cannot be stored; then nothing is named.

        A text is stored in UTF-8; lone surrogates, which UTF-8 does not have, in the bytes they would take.
        """
        content = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        files.make_folder(self.workspace)
        return output_files.keep(self.workspace, *name_of(step_id, ext), content)

    def read(self, ref: str) -> bytes:
        """Give the bytes behind a reference. Raises LoomError: REF_GONE, UNSAFE_LINK, BAD_REF (it leads out)."""
        parts = ref.split("/")
        if parts[:1] != [FOLDER] or len(parts) != 2 or not parts[1] or parts[1].startswith("."):
            raise LoomError(
                "BAD_REF", f"{ref!r} names no output of this run", where=self.workspace, hint="loomctl steps"
            )
        path = os.path.join(self.workspace, ref)
        files.refuse_links(self.workspace, path)
        try:
            return files.read_bytes(path, limit=LARGEST)
        except OSError as error:
            hint = f"ls -l {quoted(os.path.dirname(path))}"
            raise LoomError("REF_GONE", "the output is not there", where=path, why=str(error), hint=hint) from None
