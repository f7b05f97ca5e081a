"""OpenCode: one plugin file, which leads to the bundle's."""

from __future__ import annotations

import json
import os

from loomctl.hosts.setup.plans import MARK, Places, Plan, own_file

FOLDER = ("OPENCODE_CONFIG_DIR", ".config/opencode")


def plan(places: Places) -> Plan:
    """Give the plugin file; it sets PATH for its shells, so no link is needed."""
    text = f"// {MARK} opencode`; `loomctl plugin remove opencode` removes it.\n"
    plugin = json.dumps(os.path.join(places.bundle, "hooks", "opencode.js"))
    text += f"export {{ default }} from {plugin}\n"
    path = os.path.join(places.folder, "plugin", "loom.js")
    return Plan((own_file(path, "the plugin: hooks, commands, skills", text.encode()),), needs_link=False)
