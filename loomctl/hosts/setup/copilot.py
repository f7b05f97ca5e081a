"""GitHub Copilot CLI: its own install brings all but a `loomctl` on PATH."""

from __future__ import annotations

from loomctl.hosts.setup.plans import Places, Plan
from loomctl.kit.errors import quoted

FOLDER = ("COPILOT_HOME", ".copilot")


def plan(places: Places) -> Plan:
    """Give what its user does: no file is needed."""
    add = f"copilot plugin marketplace add {quoted(places.bundle)} && copilot plugin install loom@loom"
    return Plan((), then=(add,))
