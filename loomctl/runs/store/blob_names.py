"""The references to blobs that stand in bytes, however a writer escaped them (D38)."""

from __future__ import annotations

import re

from loomctl.runs.model import blob_refs

# However a writer escapes the slashes; a hash beside "sha256": keeps a blob, too, which does no harm.
NAMED = re.compile(rb"(?s)sha256.{1,12}?([0-9a-f]{64})")


def named_in(data: bytes) -> set[str]:
    """Give the references that may stand in bytes."""
    return {blob_refs.ref_to(match.decode()) for match in NAMED.findall(data)}
