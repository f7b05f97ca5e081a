"""What the wheel says of Loom: the README, its links leading to the repository as this version has it.

A forge takes `docs/demo.svg` from where the README stands; a package index has no such file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_BESIDE = re.compile(r"\]\((?![a-z]+:|#)")
_PLACEHOLDER = "<this repository>"


class ReadmeHook(MetadataHookInterface):
    """Sets `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Give the README with whole addresses; pictures are served as they are, pages as a forge shows them."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        at = f"v{metadata['version']}"
        repository = metadata["urls"]["Repository"]
        text = re.sub(r"(!\[[^\]]*)\]\((?![a-z]+:)", rf"\1]({repository}/raw/{at}/", text)
        text = _BESIDE.sub(f"]({repository}/blob/{at}/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text.replace(_PLACEHOLDER, repository)}
