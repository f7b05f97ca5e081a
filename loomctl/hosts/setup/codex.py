"""Codex CLI: hooks in the user's own folder, whose trust outlives an update of the plugin.

A plugin's hooks are trusted with every file of the plugin, so each update silences them until they are trusted again.
A hook in `hooks.json` is trusted by its own words. Beside it the plugin's hooks give way: the launcher looks for
`STANDS_ASIDE`.
"""

from __future__ import annotations

import os

from loomctl.hosts.setup.plans import MARK, Places, Plan, calling, json_file, own_file, with_hooks, without_hooks
from loomctl.kit import files
from loomctl.kit.errors import quoted

FOLDER = ("CODEX_HOME", ".codex")
HOST = "codex"
LOGIN_SHELL = True  # runs all commands
STANDS_ASIDE = "loom-hooks"
_CACHE = "/.codex/plugins/cache/"
_BESIDE = f"""# {MARK} codex`; `loomctl plugin remove codex` removes it.
# hooks.json beside this file calls Loom, so the hooks of its plugin do not.
"""


def plan(places: Places) -> Plan:
    """Give what is put into the folder of Codex CLI."""
    entries = calling(
        files.read_json(os.path.join(places.bundle, "hooks", "codex.json"))["hooks"], "${PLUGIN_ROOT}", places.launcher
    )
    hooks = json_file(
        os.path.join(places.folder, "hooks.json"),
        "keeps Loom's hooks trusted when Loom is updated",
        f"{len(entries)} hooks that call {places.launcher}",
        lambda settings: with_hooks(settings, HOST, entries),
        lambda settings: without_hooks(settings, HOST),
    )
    aside = own_file(
        os.path.join(places.folder, STANDS_ASIDE), "keeps the plugin's hooks from answering, too", _BESIDE.encode()
    )
    add = f"codex plugin marketplace add {quoted(places.bundle)} && codex plugin add loom@loom"
    then: tuple[str, ...] = (f"for its skills: {add}", "start codex, which asks you to trust the hooks (later: /hooks)")
    if _CACHE in places.bundle:  # another folder after each update, to which no link leads
        then += (f"after each update: loomctl plugin install {HOST}, from the new folder in {_CACHE.strip('/')}",)
    return Plan((hooks, aside), then=then)
