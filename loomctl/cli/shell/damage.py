"""What is said where Loom's own environment, or Loom itself, lacks a part: the standard library alone (D52)."""

from __future__ import annotations

import os
import sys

from loomctl.cli.shell import output
from loomctl.kit import bundle_lines
from loomctl.kit.errors import EXIT_SETUP, LoomError
from loomctl.runs import project


def of(error: ImportError) -> LoomError:
    """Give the error for what cannot be imported. Code ENVIRONMENT_DAMAGED, exit 8."""
    root = project.plugin_root()
    python = os.environ.get("LOOM_ENV_PYTHON", "")
    hint = bundle_lines.new_environment(root, os.path.dirname(os.path.dirname(python))) if python else "loomctl doctor"
    if (error.name or "").partition(".")[0] == "loomctl":
        hint = bundle_lines.repair(root, "loomctl")
    return LoomError(
        "ENVIRONMENT_DAMAGED",
        "a part of what Loom runs with is missing or broken",
        where=error.path or sys.prefix,
        why=f"{type(error).__name__}: {error}",
        hint=hint,
        exit_code=EXIT_SETUP,
    )


def tell(error: ImportError, arguments: list[str]) -> int:
    """Print the error as the command line would that cannot be started; gives its exit code."""
    output.prepare()
    said = of(error)
    try:
        if "--json" in arguments:
            print(output.rendered({"error": said.to_dict()}))
        else:
            print(f"loomctl: {said}", file=sys.stderr)
    except OSError:  # nobody listens
        pass
    output.finish()
    return said.exit_code
