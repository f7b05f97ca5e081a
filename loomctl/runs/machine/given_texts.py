"""The texts that conversations were given in full, by their SHA-256: what a later diff begins with (D15).

Machine-local and dispensable: where one is gone or is not what its name says, the artifact is given whole. They are as
they were given, secrets masked.
"""

from __future__ import annotations

import os

from loomctl.kit import digests, files
from loomctl.kit.errors import LoomError
from loomctl.runs.store.blobs import is_sha256

FOLDER = "given"
MOST = 200
"""Files that are kept; the oldest go first."""
LARGEST = 1 << 18
"""Bytes of one; what is longer is not kept."""


def keep(local: str, text: str) -> str:
    """Keep a text; gives its SHA-256, empty where it is not kept. Raises OSError and UNSAFE_LINK."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > LARGEST:
        return ""
    sha256 = digests.of_bytes(data)
    path = _path(local, sha256)
    files.refuse_links(os.path.dirname(local), path)
    if os.path.isfile(path):
        os.utime(path)
        return sha256
    files.make_folder(os.path.dirname(path))
    files.write_atomically(path, data, durable=False)
    _make_room(os.path.dirname(path))
    return sha256


def read(local: str, sha256: str) -> str | None:
    """Give a text that was kept; None where it is gone, damaged, or a link leads to it."""
    if not is_sha256(sha256) or files.leads_away(os.path.dirname(local), _path(local, sha256)):
        return None
    try:
        data = files.read_bytes(_path(local, sha256), limit=LARGEST)
    except (OSError, LoomError):
        return None
    return data.decode("utf-8", "surrogatepass") if digests.of_bytes(data) == sha256 else None


def _path(local: str, sha256: str) -> str:
    return os.path.join(local, FOLDER, f"{sha256}.txt")


def _make_room(folder: str) -> None:
    names = os.listdir(folder)
    if len(names) <= MOST:
        return
    ages = sorted(
        (os.stat(path).st_mtime, path) for name in names if os.path.isfile(path := os.path.join(folder, name))
    )
    for _, path in ages[: len(names) - MOST]:
        files.remove(path)
