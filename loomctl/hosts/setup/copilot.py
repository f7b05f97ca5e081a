"""GitHub Copilot CLI: its own install brings all but a `loomctl` on PATH."""

from __future__ import annotations

from loomctl.hosts.setup.plans import Places, Plan
from loomctl.kit.errors import quoted

FOLDER = ("COPILOT_HOME", ".copilot")


def plan(places: Places) -> Plan:
    """Give what its user does: no file is needed."""
    return Plan((), then=(f"copilot plugin install {quoted(places.bundle)}",))
