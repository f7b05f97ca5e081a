"""A seam: the blobs of a store as commands need them, until the module of blobs stands in its place."""

from __future__ import annotations

import os

from loomctl.disk import digests, files


def put(store: str, data: bytes) -> str:
    """Store bytes once by their SHA-256 and give the reference. Raises OSError."""
    sha256 = digests.of_bytes(data)
    path = os.path.join(store, "blobs", "sha256", sha256[:2], sha256)
    files.refuse_links(os.path.dirname(store), path)
    if not os.path.exists(path):
        files.make_folder(os.path.dirname(path))
        files.write_atomically(path, data)
    return f"blob://sha256/{sha256}"
