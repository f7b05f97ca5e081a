"""Gemini CLI: a policy that allows `loomctl`, for an extension may not allow anything."""

from __future__ import annotations

import os

from loomctl.hosts.setup.plans import MARK, Places, Plan, own_file
from loomctl.kit.errors import quoted

FOLDER = ("", ".gemini")
_POLICY = f"""# {MARK} gemini`; `loomctl plugin remove gemini` removes it.
# The assistant may call loomctl without a question. Loom still refuses it what only you decide.
[[rule]]
toolName = "run_shell_command"
commandPrefix = ["loomctl"]
decision = "allow"
priority = 100

# A step's result comes behind <<'LOOM': that alone may be redirected, so no other < or > may follow.
[[rule]]
toolName = "run_shell_command"
commandRegex = '''loomctl done[-A-Za-z0-9_=./@:, ]*<<'LOOM'\\\\n[^<>]*\\\\nLOOM"'''
decision = "allow"
priority = 110
allowRedirection = true
"""


def plan(places: Places) -> Plan:
    """Give the policy file."""
    path = os.path.join(places.folder, "policies", "loom.toml")
    policy = own_file(path, "lets the assistant call loomctl without a question", _POLICY.encode())
    return Plan((policy,), then=(f"gemini extensions link {quoted(places.bundle)}",))
