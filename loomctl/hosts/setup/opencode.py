"""OpenCode loads every file in `plugin/` of its settings' folder: one that leads to the bundle's is all it needs."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from urllib.parse import quote

from loomctl.hosts.setup.plans import Places, Plan, own_file

FOLDER = ("OPENCODE_CONFIG_DIR", ".config/opencode")
_MARK = "// Written by loomctl plugin install opencode; loomctl plugin remove opencode takes it away."


def plan(places: Places) -> Plan:
    """Give the plugin file; it sets PATH for its shells, so no link is needed."""
    path = os.path.join(places.folder, "plugin", "loom.js")
    plugin = own_file(path, "is the plugin: hooks, commands, skills", text(places.bundle).encode(), is_ours)
    return Plan((plugin,), needs_link=False)


def text(bundle: str) -> str:
    """Give what stands in it. bundle: the folder with `hooks/opencode.js`, absolute."""
    place = quote(str(PurePosixPath(bundle, "hooks", "opencode.js")))
    return f'{_MARK}\nexport {{ default }} from "file://{place}"\n'


def is_ours(held: str) -> bool:
    """Tell a file that Loom wrote, for whatever bundle: it may be written over and taken away."""
    return held.startswith(_MARK)
