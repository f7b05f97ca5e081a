"""A workflow is found by id, by place or by path, and its file is read or refused with reasons."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from loomctl.workflows.workflow_files import LARGEST_YAML, Places, available, load, locate, portable
from tests.helpers.errors import refusal


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """Give a project and a bundle with a few workflows."""
    files = {
        "bundle/config/workflows/core.yaml": "core", "bundle/config/workflows/default.yaml": "default",
        "project/.loom/workflows/ours.yaml": "ours", "project/.loom/workflows/default.yaml": "default",
        "project/.fractary/faber/workflows/old.json": "old",
        "project/.loom/workflows/fractary-faber-own.json": "fractary-faber-own", "project/flows/x.yml": "x",
        "project/.loom/workflows/graph.dot": "graph", "project/.loom/workflows/twice.json": "twice",
        "project/.loom/workflows/twice.yaml": "twice",
    }  # fmt: skip
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"id": text, "phases": {}}), encoding="utf-8")
    return Places(str(tmp_path / "project"), str(tmp_path / "project" / ".loom"), str(tmp_path / "bundle"))


FOUND = [
    ("core", "bundle/config/workflows/core.yaml"),
    ("ours", "project/.loom/workflows/ours.yaml"),
    ("old", "project/.fractary/faber/workflows/old.json"),
    ("default", "project/.loom/workflows/default.yaml"),
    ("loom:default", "bundle/config/workflows/default.yaml"),
    ("project:default", "project/.loom/workflows/default.yaml"),
    ("fractary-faber:old", "project/.fractary/faber/workflows/old.json"),
    ("faber@fractary-faber:old", "project/.fractary/faber/workflows/old.json"),
    ("faber@fractary-faber:core", "bundle/config/workflows/core.yaml"),
    ("fractary-faber@fractary:core", "bundle/config/workflows/core.yaml"),
    ("fractary-faber-core", "bundle/config/workflows/core.yaml"),
    ("fractary-faber-own", "project/.loom/workflows/fractary-faber-own.json"),
    ("graph", "project/.loom/workflows/graph.dot"),
    ("flows/x.yml", "project/flows/x.yml"),
    ("./flows/../flows/x.yml", "project/flows/x.yml"),
]


def test_a_name_finds_its_file_and_the_bundle_means_its_own_and_stands_in_for_faber(
    places: Places, tmp_path: Path
) -> None:
    for ref, expected in FOUND:
        assert locate(ref, places, base=places.project_dir).path == str(tmp_path / expected)
        absolute = str(tmp_path / expected)
        assert locate(absolute, places).path == absolute
    bundled = os.path.join(places.bundled, "default.yaml")
    ours = os.path.join(places.project_dir, ".loom", "workflows", "ours.yaml")
    assert locate("default", places, named_in=bundled).path == bundled
    assert locate("default", places, named_in=ours).path == str(tmp_path / "project/.loom/workflows/default.yaml")
    assert locate("../../flows/x.yml", places, named_in=ours).path == str(tmp_path / "project/flows/x.yml")
    assert locate("fractary-faber:core", places).stands_in
    assert locate("faber@fractary-faber:core", places).stands_in
    assert not locate("fractary-faber:old", places).stands_in


def test_a_path_begins_at_the_current_directory(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.path.join(places.project_dir, "flows"))
    assert locate("x.yml", places).path == os.path.join(places.project_dir, "flows", "x.yml")


LOST = [
    ("nobody", "UNKNOWN_WORKFLOW"), ("project:core", "UNKNOWN_WORKFLOW"), ("loom:ours", "UNKNOWN_WORKFLOW"),
    ("flows/y.yml", "UNKNOWN_WORKFLOW"), ("y.json", "UNKNOWN_WORKFLOW"), ("acme:core", "BAD_ID"),
    ("acme@market:core", "BAD_ID"), ("faber@fractary-faber:nobody", "UNKNOWN_WORKFLOW"),
    ("faber@fractary-faber:../core", "UNKNOWN_WORKFLOW"), ("faber@fractary-faber", "BAD_ID"), ("", "BAD_ID"),
    ("..", "BAD_ID"), ("project:..", "BAD_ID"), ("two words", "BAD_ID"), ("x\0", "BAD_ID"),
    ("twice", "AMBIGUOUS_WORKFLOW"), ("flows/graph.dot", "UNKNOWN_WORKFLOW"),
]  # fmt: skip


def test_a_name_that_finds_nothing_says_why_and_what_was_probably_meant(places: Places) -> None:
    for ref, code in LOST:
        caught = refusal(locate, ref, places, base=places.project_dir)
        assert caught.code == code
        assert caught.hint
    caught = refusal(locate, "defualt", places)
    assert "did you mean default?" in caught.why
    assert caught.hint == "loomctl check default"


def test_what_there_is_can_be_listed_and_no_machine_is_in_a_portable_name(places: Places) -> None:
    assert available(places) == ["core", "default", "fractary-faber-own", "graph", "old", "ours", "twice"]
    assert available(Places("/nowhere", "/nowhere/.loom", places.bundle)) == ["core", "default"]
    assert portable(os.path.join(places.bundled, "core.yaml"), places) == "{plugin_root}/config/workflows/core.yaml"
    assert portable(os.path.join(places.project_dir, "flows", "x.yml"), places) == "{project_root}/flows/x.yml"
    assert portable("/elsewhere/y.json", places) == "y.json"


def test_a_file_is_read_with_its_digest_and_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"id": "a"}')
    (tmp_path / "a.yaml").write_text("id: a\n", encoding="utf-8")
    assert load(str(tmp_path / "a.json")).raw == load(str(tmp_path / "a.yaml")).raw
    assert len(load(str(tmp_path / "a.yaml")).sha256) == 64
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "bytes.json").write_bytes(b'{\n "a": "\xff"}')
    (tmp_path / "huge.yaml").write_text("a: " + "x" * LARGEST_YAML, encoding="utf-8")
    codes = {}
    for name in ("folder.json", "pipe.json", "missing.json", "bytes.json", "huge.yaml", "nul\0.json"):
        (problem,) = load(str(tmp_path / name)).problems
        codes[name] = (problem.code, problem.where)
    assert codes == {
        "folder.json": ("UNREADABLE", "$"), "pipe.json": ("UNREADABLE", "$"),
        "missing.json": ("UNREADABLE", "$"), "nul\0.json": ("UNREADABLE", "$"),
        "bytes.json": ("NOT_UTF8", "line 2, column 8"), "huge.yaml": ("TOO_LARGE", "$"),
    }  # fmt: skip
