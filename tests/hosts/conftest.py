"""What tests of several hosts share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose login shell finds what stands in ~/.local/bin."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / ".profile").write_text('PATH="$HOME/.local/bin:/usr/bin:/bin"\n')
    for name in ("CODEX_HOME", "COPILOT_HOME", "OPENCODE_CONFIG_DIR", "XDG_CONFIG_HOME", "BASH_ENV", "ENV"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("SHELL", "/bin/sh")
    return folder
