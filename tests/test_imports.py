"""Imports point one way: the contract of pyproject.toml, kept and able to fail."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.house import imports, knots_of
from tests.helpers.tables import each

CHECKOUT = Path(__file__).resolve().parents[1]


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the package and the contract that stand in a folder."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    environ = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [*command, "--no-cache"], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


def test_the_layers_hold() -> None:
    """Each room imports from the rooms below it alone, and what decides touches nothing of the world."""
    ended = lint_imports(CHECKOUT)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_no_modules_import_one_another() -> None:
    """No module is in a cycle of imports; those inside functions and for a type checker alone count too."""
    paths = {path: path.relative_to(CHECKOUT).with_suffix("").parts for path in (CHECKOUT / "loomctl").rglob("*.py")}
    trees = {
        ".".join(parts).removesuffix(".__init__"): ast.parse(path.read_text("utf-8")) for path, parts in paths.items()
    }
    assert knots_of({name: set(imports(name, tree, trees)) for name, tree in trees.items()}) == []


@each(
    ("module", "line"),
    [
        ("runs/model/state.py", "import loomctl.kit.files"),
        ("runs/model/state.py", "import os"),
        ("workflows/steps.py", "def late() -> None:\n    import subprocess"),
        ("kit/files.py", "from loomctl import flow"),
        ("flow/__init__.py", "import loomctl.hosts"),
        ("hosts/__init__.py", "import loomctl.cli"),
        ("hosts/__init__.py", "from loomctl import fleet"),
        ("drive/__init__.py", "def late() -> None:\n    import loomctl.fleet"),
        ("fleet/__init__.py", "import loomctl.hosts"),
        ("cli/__init__.py", "def late() -> None:\n    import psycopg"),
        ("fleet/__init__.py", "from psycopg import sql"),
    ],
)
def test_an_import_against_the_direction_is_found(tmp_path: Path, module: str, line: str) -> None:
    """The contract is alive: one wrong import breaks it."""
    shutil.copytree(CHECKOUT / "loomctl", tmp_path / "loomctl", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CHECKOUT / "pyproject.toml", tmp_path)
    with (tmp_path / "loomctl" / module).open("a") as source:
        source.write(f"\n{line}\n")
    ended = lint_imports(tmp_path)
    assert ended.returncode == 1
    assert "BROKEN" in ended.stdout
