"""Installations for the doctor to examine."""

import shutil
import sys
import time
from pathlib import Path
from typing import Any

from loomctl.care.project_checks import Patient
from loomctl.runs import project
from tests.helpers.scenes import CHECKOUT, SESSION, Scene

BUNDLE = (".claude-plugin", "bin", "config", "hooks", "plugin.json", "requirements.lock", "loomctl")


def patient(where: Scene | Path, *, bundle: Path | None = None, **changes: Any) -> Patient:
    """Give what the doctor examines in a folder. bundle: another one than this checkout."""
    folder = str(where.root if isinstance(where, Scene) else where)
    known = {
        "cwd": folder, "project": project.find((folder,)), "environment_python": sys.executable,
        "session_id": SESSION, "now": time.time(), "program": "",
    }  # fmt: skip
    made = Patient(**{**known, **changes})
    if bundle is not None:
        made.bundle, made.launcher = str(bundle), str(bundle / "bin" / "loomctl")
    return made


def copied_bundle(folder: Path) -> Path:
    """Copy this checkout's bundle, to be damaged."""
    folder.mkdir(parents=True)
    for name in BUNDLE:
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder
