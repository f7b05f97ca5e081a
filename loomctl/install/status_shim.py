"""The small script that a user's settings name as their status line: it finds the Loom that this machine uses now.

A plugin's folder is another one after each update, and a status line's command has neither that folder nor its `bin/`
on its PATH. So the script stands in the user's own state folder, names the launcher, and is written anew by the first
SessionStart of an updated plugin.
"""

from __future__ import annotations

import os

from loomctl.kit import files, machine

_SCRIPT = """#!/bin/sh
# The status line of Loom, for the settings of an assistant. `loomctl statusline --snippet` made it, and the start of a
# session makes it again once Loom stands elsewhere, as after an update.
launcher={launcher}
[ -x "$launcher" ] && exec "$launcher" statusline
exit 0
"""


def write(launcher: str) -> str:
    """Write the script, for a launcher; gives its place, empty where there is none. Raises OSError and UNSAFE_LINK."""
    place = machine.status_script()
    if place:
        files.make_folder(os.path.dirname(place))
        files.write_atomically(place, _content(launcher), mode=0o700, durable=False)
    return place


def renew_own() -> None:
    """Write the script again where it is there and names another Loom than this one; most machines have none.

    Raises OSError and UNSAFE_LINK.
    """
    root = os.environ.get("LOOM_PLUGIN_ROOT", "")  # the launcher says it
    place, launcher = machine.status_script(), os.path.join(root, "bin", "loomctl")
    if not place or not os.path.isabs(root):
        return
    try:
        known = files.read_bytes(place, limit=1 << 14)
    except FileNotFoundError:
        return
    if known != _content(launcher) and os.access(launcher, os.X_OK):
        write(launcher)


def _content(launcher: str) -> bytes:
    return os.fsencode(_SCRIPT.replace("{launcher}", _quoted(launcher)))


def _quoted(text: str) -> str:
    """Quote for a shell; `shlex` costs a hook more than all else that happens here."""
    return "'" + text.replace("'", "'\"'\"'") + "'"
