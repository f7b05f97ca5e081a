"""The values of a run's context: which become blobs, how they are read, where they are put to be read (D38, D42)."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomctl.kit import files
from loomctl.runs import context_values, project, stages
from loomctl.runs.project import Workspace
from loomctl.runs.store.blobs import Blobs, ref_of
from loomctl.runs.store.store import Run
from tests.helpers.errors import refusal
from tests.helpers.scenes import Scene
from tests.helpers.tables import each

LIMIT = 102_400
UNKNOWN = f"blob://sha256/{'a' * 64}"


def there(scene: Scene) -> tuple[Workspace, Run]:
    """The project as a session meets it, and its run."""
    space = scene.space()
    return space, space.store.read(scene.run_dir.name)


def compact(value: Any) -> bytes:
    """Give a value's compact UTF-8 JSON as anybody else would make it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


# ---- The limit.

SIZES = [
    ("a text of the limit", "x" * (LIMIT - 2), False),
    ("a text of one more", "x" * (LIMIT - 1), True),
    ("two bytes a letter, the limit", "é" * ((LIMIT - 2) // 2), False),
    ("two bytes a letter, one more", "é" * ((LIMIT - 2) // 2) + "x", True),
    ("three bytes a letter, below in letters", "€" * 34_133, True),
    ("three bytes a letter, the limit", "€" * 34_132 + "xx", False),
    ("four bytes a letter", "😀" * 25_600, True),
    ("four bytes a letter, fitting", "😀" * 25_599, False),
    ("quotes cost two bytes", '"' * 51_199, False),
    ("quotes cost two bytes, one more", '"' * 51_199 + "x", True),
    ("a list", [0] * 51_199, False),
    ("a list of the limit and one", [10] + [0] * 51_199, True),
    ("an object whose key counts", {"k" * (LIMIT - 6): 1}, False),
    ("an object whose key is one longer", {"k" * (LIMIT - 5): 1}, True),
    ("a number", 7, False),
    ("nothing", None, False),
    ("an empty text", "", False),
]


@each("value, goes", [row[1:] for row in SIZES])
def test_what_is_over_the_limit_becomes_a_blob(begun: Scene, value: Any, goes: bool) -> None:
    space, run = there(begun)
    assert (len(compact(value)) > LIMIT) == goes
    values, warnings = context_values.stored(space, {"k": value})
    assert warnings == []
    blob = begun.store / "blobs" / "sha256"
    if goes:
        assert values == {"k": f"blob://sha256/{hashlib.sha256(compact(value)).hexdigest()}"}
        assert Blobs(str(begun.store)).get(values["k"]) == compact(value)
    else:
        assert values == {"k": value}
        assert [path for path in blob.rglob("*") if path.is_file() and path.read_bytes() == compact(value)] == []
    assert context_values.value_of(space, run, values["k"]) == value


def test_each_key_is_measured_by_itself_and_a_response_is_held_by_its_stage_and_reads_as_text(begun: Scene) -> None:
    space, _ = there(begun)
    small = {f"key{number}": "x" * 50_000 for number in range(10)}
    large = {"report": {"title": "t", "body": "y" * LIMIT}}
    values, _ = context_values.stored(space, {**small, **large})
    assert {key: values[key] for key in small} == small
    assert values["report"] == ref_of(compact(large["report"]))
    space, run = there(begun)
    stage = run.state["steps"][0]["stage"]
    for response in ("short", "x" * (LIMIT - 2), "x" * (LIMIT - 1)):
        stages.write_response(run.folder, stage, response)
        value, warnings = context_values.response_value(space, stage, response)
        by_file = {"$stage": stage, "file": "response.md"}
        assert value == (by_file if len(response) <= LIMIT - 2 else ref_of(compact(response)))
        assert (warnings, context_values.text_of(space, run, value)) == ([], response)


@each("output", ["", "ok\n", "x" * 200_000])
def test_a_commands_output_is_always_a_blob(begun: Scene, output: str) -> None:
    space, run = there(begun)
    values, _ = context_values.stored(space, {"command.output": output, "command.exit_code": 0})
    assert values == {"command.output": ref_of(compact(output)), "command.exit_code": 0}
    assert context_values.text_of(space, run, values["command.output"]) == output


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    )
)
def test_any_value_reads_as_what_it_was(begun: Scene, value: Any) -> None:
    space, run = there(begun)
    for key in ("k", "command.output"):
        values, warnings = context_values.stored(space, {key: value})
        assert (context_values.value_of(space, run, values[key]), warnings) == (value, [])


@each("value", ["\ud800 half", "nul \0", "\u2028", "\x1b[31m"])
def test_odd_texts_come_back(begun: Scene, value: str) -> None:
    """What UTF-8 does not have, and what terminals obey."""
    space, run = there(begun)
    values, _ = context_values.stored(space, {"command.output": value})
    assert context_values.text_of(space, run, values["command.output"]) == value


# ---- References that a model writes.


def test_a_reference_that_leads_somewhere_is_passed_on_and_another_reads_as_its_text(begun: Scene) -> None:
    """A step may name a blob that it was shown; the blob counts as new then, so that nobody collects it."""
    space, run = there(begun)
    values, _ = context_values.stored(space, {"a": "x" * LIMIT})
    path = Blobs(str(begun.store)).path(values["a"])
    os.utime(path, (1, 1))
    again, warnings = context_values.stored(space, {"b": values["a"]})
    assert (again, warnings) == ({"b": values["a"]}, [])
    assert os.stat(path).st_mtime > 1
    assert context_values.value_of(space, run, again["b"]) == "x" * LIMIT
    values, warnings = context_values.stored(space, {"a": UNKNOWN})
    assert warnings == []
    assert values["a"] != UNKNOWN
    assert context_values.value_of(space, run, values["a"]) == UNKNOWN


# ---- What could not be stored.


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_what_cannot_be_stored_stays_inline_and_is_said(
    begun: Scene, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A full disk: the value is in the state, the warning names the key, its size and why (D38)."""
    space, run = there(begun)

    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "write_all", fails)
    given = {"report": "x" * LIMIT, "command.output": "", "small": 1}
    values, warnings = context_values.stored(space, given)
    assert values == given
    assert [(one["code"], one["where"]) for one in warnings] == [
        ("NOT_OFFLOADED", "report"),
        ("NOT_OFFLOADED", "command.output"),
    ]
    assert "102,402 bytes stay in the state" in warnings[0]["message"]
    assert os.strerror(number) in warnings[0]["message"]
    assert context_values.value_of(space, run, values["report"]) == "x" * LIMIT
    kept, said = context_values.response_value(space, "001-frame.ask@1", "y" * LIMIT)
    assert kept == {"$stage": "001-frame.ask@1", "file": "response.md"}
    assert [one["code"] for one in said] == ["NOT_OFFLOADED"]


def test_a_link_in_the_blobs_place_is_a_warning_too(begun: Scene, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (begun.store / "blobs").symlink_to(tmp_path / "elsewhere")
    values, warnings = context_values.stored(begun.space(), {"a": "x" * LIMIT})
    assert values == {"a": "x" * LIMIT}
    assert "symbolic link" in warnings[0]["message"]
    assert list((tmp_path / "elsewhere").iterdir()) == []


# ---- Reading.


@each(
    "value",
    [
        {"$stage": "001-frame.ask@1", "file": "../../state.json"},
        {"$stage": "001-frame.ask@1", "file": "prompt.md"},
        {"$stage": 1, "file": "response.md"},
        {"$stage": "001-frame.ask@1", "file": "response.md", "more": 1},
        {"$stage": "001-frame.ask@1"},
    ],
)
def test_an_object_that_is_no_reference_is_itself(begun: Scene, value: Any) -> None:
    space, run = there(begun)
    assert context_values.value_of(space, run, value) == value


@each("stage", ["../../../etc", "a/b", "..", "", "001-frame.ask@9"])
def test_a_response_that_is_gone_is_named(begun: Scene, stage: str) -> None:
    space, run = there(begun)
    caught = refusal(context_values.value_of, space, run, {"$stage": stage, "file": "response.md"})
    assert caught.code in ("RESPONSE_GONE", "BAD_ID")
    assert caught.hint


def test_unknown_and_damaged_blobs_are_named_by_who_reads_them(begun: Scene) -> None:
    space, _ = there(begun)
    values, _ = context_values.stored(space, {"large": "x" * LIMIT, "other": "y" * LIMIT, "small": 1})
    Path(Blobs(str(begun.store)).path(values["large"])).write_bytes(b"rubbish")
    begun.edit(context={**values, "gone": UNKNOWN, "late": {"$stage": "009-x.y@1", "file": "response.md"}})
    space, run = there(begun)
    for ref, code in ((values["large"], "DAMAGED_BLOB"), (UNKNOWN, "NO_SUCH_BLOB")):
        caught = refusal(context_values.text_of, space, run, ref)
        assert caught.code == code
        assert ref in caught.what
    read, troubles = context_values.read_all(space, run)
    assert (read["other"], read["small"]) == ("y" * LIMIT, 1)
    assert (read["large"], read["gone"]) == (values["large"], UNKNOWN)
    assert {(error.code, error.where.partition(":")[0]) for error in troubles} == {
        ("DAMAGED_BLOB", "context large"),
        ("NO_SUCH_BLOB", "context gone"),
        ("RESPONSE_GONE", "context late"),
    }


# ---- For reading (D42).


def large(scene: Scene, value: Any) -> tuple[Workspace, Run, str]:
    space, run = there(scene)
    return space, run, context_values.stored(space, {"command.output": value})[0]["command.output"]


def test_a_blob_becomes_a_file_only_when_it_is_asked_for_a_text_with_its_lines(begun: Scene) -> None:
    """In the run's folder, with the bytes that its hash names, for its owner alone, written once."""
    space, run, ref = large(begun, {"a": "x" * LIMIT})
    assert not (begun.run_dir / "blobs").exists()
    path = context_values.materialised(space, run, ref)
    assert path == str(begun.run_dir / "blobs" / f"{ref[14:]}.json")
    assert (ref_of(Path(path).read_bytes()), stat.S_IMODE(os.stat(path).st_mode)) == (ref, 0o600)
    before = os.stat(path)
    assert (context_values.materialised(space, run, ref), os.stat(path).st_ino) == (path, before.st_ino)
    space, run, ref = large(begun, "one\ntwo é\n")
    path = context_values.materialised(space, run, ref, as_text=True)
    assert path == str(begun.run_dir / "blobs" / f"{ref[14:]}.txt")
    assert Path(path).read_text(encoding="utf-8") == "one\ntwo é\n"
    space, run, ref = large(begun, [1])
    assert context_values.materialised(space, run, ref, as_text=True).endswith(".json")


def test_a_changed_copy_is_made_anew_and_a_whole_one_stands_for_a_lost_blob(begun: Scene) -> None:
    space, run, ref = large(begun, "x" * LIMIT)
    path = Path(context_values.materialised(space, run, ref))
    path.write_text("edited")
    assert context_values.value_of(space, run, ref) == "x" * LIMIT
    assert Path(context_values.materialised(space, run, ref)).read_bytes() == compact("x" * LIMIT)
    os.unlink(Blobs(str(begun.store)).path(ref))
    assert context_values.value_of(space, run, ref) == "x" * LIMIT
    path.write_bytes(b"edited")
    assert refusal(context_values.value_of, space, run, ref).code == "NO_SUCH_BLOB"


@pytest.mark.parametrize("absolute", [False, True])
def test_a_step_in_a_directory_of_its_own_gets_its_own_copy(begun: Scene, absolute: bool) -> None:
    space, run, ref = large(begun, "x" * LIMIT)
    workdir = begun.root / "sandbox"
    workdir.mkdir()
    path = context_values.materialised(space, run, ref, str(workdir) if absolute else "sandbox")
    assert path == str(workdir / ".loom" / "blobs" / f"{ref[14:]}.json")
    assert Path(path).read_bytes() == compact("x" * LIMIT)
    assert (workdir / ".loom" / ".gitignore").read_text() == "*\n"
    assert not (begun.run_dir / "blobs").exists()


def test_copies_are_taken_for_no_store_and_a_directorys_own_store_stays(begun: Scene) -> None:
    """Who works in that directory still finds the project's own (D3)."""
    space, run, ref = large(begun, "x" * LIMIT)
    (begun.root / "sandbox" / "deep").mkdir(parents=True)
    context_values.materialised(space, run, ref, "sandbox")
    for folder in ("sandbox", "sandbox/deep"):
        found = project.find((str(begun.root / folder),))
        assert found is not None
        assert found.store == str(begun.store)
    (begun.store / "copies-only").touch()  # the mark hides no store that a project has
    assert begun.space().store.run_ids() == [run.run_id]
    (begun.root / "other" / ".loom" / "runs").mkdir(parents=True)
    path = context_values.materialised(space, run, ref, "other")
    assert os.path.isfile(path)
    assert sorted(one.name for one in (begun.root / "other" / ".loom").iterdir()) == ["blobs", "runs"]


@each("workdir", [None, "", ".", "{root}", "sandbox/.."])
def test_where_the_store_is_seen_nothing_is_copied(begun: Scene, workdir: str | None) -> None:
    space, run, ref = large(begun, "x" * LIMIT)
    begun.write("sandbox/a b.md", "x")
    named = workdir.format(root=begun.root) if workdir else workdir
    assert context_values.materialised(space, run, ref, named).startswith(f"{begun.run_dir}/blobs/")
    assert context_values.materialised(space, run, "file:///tmp/a%20b.md", named) == "/tmp/a b.md"
    assert not (begun.root / "sandbox" / ".loom").exists()


def test_a_named_file_is_copied_for_a_step_in_a_directory_of_its_own(begun: Scene) -> None:
    space, run = there(begun)
    (begun.root / "sandbox").mkdir()
    one, two = begun.write("a/report.md", "one"), begun.write("b/report.md", "two")
    paths = [context_values.materialised(space, run, f"file://{path}", "sandbox") for path in (one, two, one, two)]
    folder = begun.root / "sandbox" / ".loom" / "artifacts"
    assert paths == [str(folder / name) for name in ("report.md", "report-2.md", "report.md", "report-2.md")]
    assert [Path(path).read_text() for path in paths] == ["one", "two", "one", "two"]


@each("named", ["{root}/../secret", "{root}/link", "{outside}", "/etc/hostname", "{root}/%2e%2e/secret"])
def test_no_file_from_outside_is_copied(begun: Scene, named: str) -> None:
    """Ways up, links and absolute paths: PATH_ESCAPE, unread (D10)."""
    outside = begun.root.parent / "secret"
    outside.write_text("secret")
    if not (begun.root / "link").exists():
        (begun.root / "link").symlink_to(outside)
        (begun.root / "sandbox").mkdir()
    space, run = there(begun)
    ref = "file://" + named.format(root=begun.root, outside=outside)
    assert refusal(context_values.materialised, space, run, ref, "sandbox").code == "PATH_ESCAPE"
    assert not (begun.root / "sandbox" / ".loom" / "artifacts").exists()


@each("workdir", ["..", "../elsewhere", "sandbox/../../elsewhere", "link", "{outside}", "/"])
def test_no_copy_leads_out(begun: Scene, workdir: str) -> None:
    """Ways up, links and absolute paths of a workdir: PATH_ESCAPE, and nothing is written there."""
    space, run, ref = large(begun, "x" * LIMIT)
    outside = begun.root.parent / "elsewhere"
    if not outside.exists():
        outside.mkdir()
        (begun.root / "link").symlink_to(outside)
    assert refusal(context_values.materialised, space, run, ref, workdir.format(outside=outside)).code == "PATH_ESCAPE"
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("place", ["sandbox/.loom", "sandbox/.loom/blobs", "sandbox/.loom/blobs/{sha256}.json"])
def test_no_link_in_a_workdir_is_followed(begun: Scene, place: str) -> None:
    space, run, ref = large(begun, "x" * LIMIT)
    outside = begun.root.parent / "elsewhere"
    outside.mkdir()
    link = begun.root / place.format(sha256=ref[14:])
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    assert refusal(context_values.materialised, space, run, ref, "sandbox").code == "UNSAFE_LINK"
    assert list(outside.iterdir()) == []


def test_a_folder_elsewhere_is_the_users_own_word(begun: Scene, user_folders: Path) -> None:
    mount = begun.root.parent / "mount"
    mount.mkdir()
    (user_folders / "config" / "loom").mkdir(parents=True)
    (user_folders / "config" / "loom" / "config.yaml").write_text(f"extra_roots: [{mount}]\n")
    space, run, ref = large(begun, "x" * LIMIT)
    assert context_values.materialised(space, run, ref, str(mount)).startswith(f"{mount}/.loom/blobs/")


@each(
    "ref, workdir, code",
    [
        (UNKNOWN, None, "NO_SUCH_BLOB"),
        ("blob://sha256/x", None, "BAD_REF"),
        ("file://elsewhere.example/x", None, "BAD_REF"),
        ("file://", None, "BAD_REF"),
        (UNKNOWN, "nowhere", "BAD_WORKDIR"),
    ],
)
def test_what_cannot_be_given_is_said(begun: Scene, ref: str, workdir: str | None, code: str) -> None:
    space, run = there(begun)
    caught = refusal(context_values.materialised, space, run, ref, workdir)
    assert caught.code == code
    assert caught.hint
