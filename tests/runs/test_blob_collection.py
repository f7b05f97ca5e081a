"""Collecting blobs: nothing goes that a run refers to, nothing young, and nothing at all where a run cannot be read."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomctl.care import keep
from loomctl.kit import files
from loomctl.kit.processes import Lock
from loomctl.runs import run_blobs
from loomctl.runs.run_blobs import Collected, Look
from loomctl.runs.store.blobs import Blobs, ref_of
from tests.helpers import repositories
from tests.helpers.faber import LAYOUTS, lay
from tests.helpers.scenes import SESSION, Scene, fingerprint
from tests.helpers.tables import each

LONG_AGO = 1_000_000_000


def put(scene: Scene, content: str, *, at: float = LONG_AGO) -> str:
    """Store a blob that was put so long ago; gives its reference."""
    store = Blobs(str(scene.store))
    ref = store.put(content.encode())
    os.utime(store.path(ref), (at, at))
    return ref


def look(scene: Scene) -> Look:
    return run_blobs.look(scene.space(), now=time.time())


def collect(scene: Scene) -> Collected:
    return run_blobs.collect(scene.space(), look(scene), now=time.time())


def is_there(scene: Scene, ref: str) -> bool:
    return os.path.isfile(Blobs(str(scene.store)).path(ref))


def test_what_no_run_refers_to_goes_but_what_is_put_again_meanwhile_stays(begun: Scene) -> None:
    stays, goes = put(begun, '"stays"'), put(begun, '"goes"')
    begun.edit(context={"a": stays})
    before = fingerprint(begun.store)
    found = look(begun)
    assert fingerprint(begun.store) == before
    assert [(blob.ref, blob.bytes) for blob in found.going] == [(goes, 6)]
    assert [blob.ref for blob in found.kept] == [stays]
    done = collect(begun)
    assert [blob.ref for blob in done.removed] == [goes]
    assert (is_there(begun, stays), is_there(begun, goes)) == (True, False)
    assert look(begun).going == []
    ref = put(begun, '"x"')
    found = look(begun)
    assert [blob.ref for blob in found.going] == [ref]
    Blobs(str(begun.store)).put(b'"x"')
    done = run_blobs.collect(begun.space(), found, now=time.time())
    assert (done.removed, done.failed) == ([], [])
    assert is_there(begun, ref)


# Every file of a run in which a reference may stand, as text that holds it.
PLACES: dict[str, str] = {
    "state.backup.json": '{{"context": {{"a": "{ref}"}}}}', "state.broken-1.json": '{{"context": {{"a": "{ref}"',
    "state.replaced-1.json": '{{"a":["{ref}"]}}', "state.v1.backup.json": '{{"a":["{ref}"]}}',
    "events.jsonl": '\n{{"event": "x", "properties": {{"output": "{ref}"}}}}\n',
    "tool_steps.jsonl": '{{"id": "toolu_1", "result": "{ref}"}}\n', "sessions.jsonl": '{{"a": "{ref}"}}\n',
    "stages/001-frame.ask@1/status.json": '{{"context_updates": {{"a": "{ref}"}}}}',
    "stages/001-frame.ask@1/status.undone-1.json": '{{"context_updates": {{"a": "{ref}"}}}}',
    "stages/001-frame.ask@1/prompt.md": "See {ref}.", "stages/001-frame.ask@1/response.md": "{ref}",
    "outputs/toolu_1.txt": "{ref}", "anything/at/all": "\0\x1b{ref}", "../half-made/plan.json": '{{"a": "{ref}"}}',
    "../without-a-state/stages/001-x.y@1/status.json": '{{"a": "{ref}"}}',
    "../../local/spool/x.json": '{{"a": "{ref}"}}', "../../../.fractary/faber/runs/p/notes.json": '{{"a": "{ref}"}}',
}  # fmt: skip


@each("name", PLACES)
@each("spelling", ["plain", "escaped", "as a code point"])
def test_a_reference_counts_wherever_it_stands(begun: Scene, name: str, spelling: str) -> None:
    ref = put(begun, '"x"')
    slash = {"plain": "/", "escaped": "\\/", "as a code point": "\\u002F"}[spelling]
    place = begun.run_dir / name
    place.parent.mkdir(parents=True, exist_ok=True)
    before = place.read_bytes() if place.exists() else None
    place.write_bytes((before or b"") + PLACES[name].format(ref=ref.replace("/", slash)).encode())
    assert [blob.ref for blob in look(begun).kept] == [ref]
    assert collect(begun).removed == []
    assert is_there(begun, ref)
    place.unlink() if before is None else place.write_bytes(before)
    with suppress(OSError):  # it is empty where the row made it
        os.removedirs(place.parent)
    assert [blob.ref for blob in look(begun).going] == [ref]


@each("shift", [-100, -64, -40, -14, -1, 0, 1, 14])
def test_a_reference_is_found_across_the_pieces_in_which_a_file_is_read(begun: Scene, shift: int) -> None:
    ref = put(begun, '"x"')
    (begun.run_dir / "long.log").write_text("." * (2 * (1 << 20) + shift) + ref + "." * 5000)
    assert look(begun).going == []


def test_a_value_that_names_another_keeps_it(begun: Scene) -> None:
    third = put(begun, '"three"')
    second = put(begun, json.dumps({"see": third}))
    first = put(begun, json.dumps([second]))
    begun.edit(context={"a": first})
    fourth = put(begun, '"four"')
    young = put(begun, json.dumps(fourth), at=time.time())
    alone = put(begun, json.dumps({"see": third, "alone": True}))
    found = look(begun)
    assert {blob.ref for blob in found.kept} == {first, second, third, fourth}
    assert [blob.ref for blob in found.young] == [young]
    assert [blob.ref for blob in found.going] == [alone]


@each("ago", [0, 60, 3590, -86_400])
def test_what_was_put_within_the_hour_stays(begun: Scene, ago: int) -> None:
    """Its writer may be about to name it; a clock that was turned back makes nothing old."""
    ref = put(begun, '"x"', at=time.time() - ago)
    assert [blob.ref for blob in look(begun).young] == [ref]
    assert collect(begun).removed == []


def test_a_blob_that_cannot_be_removed_is_said(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that is held, a folder that may not be written: named with the reason, and the others go."""
    one = put(begun, '"one"')
    monkeypatch.setattr("loomctl.runs.store.blobs.PATIENCE", 0.01)
    with Lock(str(begun.store / "blobs" / ".lock")):
        done = collect(begun)
    assert [blob.ref for blob, _ in done.failed] == [one]
    assert "the lock of the blobs is held by process" in done.failed[0][1]


def test_of_a_run_that_was_removed_or_archived_the_blobs_go(begun: Scene) -> None:
    shared, own = put(begun, '"shared"'), put(begun, '"own"')
    first = begun.run_dir
    state = {**begun.state, "context": {"a": shared, "b": own}, "status": "completed"}
    (first / "state.json").write_text(json.dumps(state))
    begun.space().local.mark_ended(SESSION)
    second = begun.begin("another").run
    path = Path(second.folder) / "state.json"
    path.write_text(json.dumps({**second.state, "context": {"a": shared}}))
    assert collect(begun).removed == []
    keep.remove(begun.space(), first.name)
    assert [blob.ref for blob in collect(begun).removed] == [own]


def _piped(state: Path) -> None:
    state.unlink()
    os.mkfifo(state)


def _linked(state: Path) -> None:
    state.rename(state.with_name("there"))
    state.symlink_to("there")


def _a_folder(state: Path) -> None:
    state.unlink()
    state.mkdir()


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "torn": lambda state: state.write_bytes(state.read_bytes()[:40]), "empty": lambda state: state.write_bytes(b""),
    "newer": lambda state: state.write_text(json.dumps({**json.loads(state.read_text()), "schema_version": 99})),
    "another run's": lambda state: state.write_text(json.dumps({**json.loads(state.read_text()), "run_id": "x"})),
    "in conflict": lambda state: state.write_text("<<<<<<< a\n{}\n=======\n{}\n>>>>>>> b\n"),
    "gone": lambda state: state.unlink(), "a link": _linked, "a pipe": _piped, "a folder": _a_folder,
}  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
def test_where_a_state_cannot_be_used_nothing_goes(begun: Scene, name: str) -> None:
    begun.edit(goal="so that there is a backup")
    (begun.run_dir / "state.backup.json").write_bytes((begun.run_dir / "state.json").read_bytes())
    ref = put(begun, '"x"')
    UNREADABLE[name](begun.run_dir / "state.json")
    found = look(begun)
    assert (found.going, [blob.ref for blob in found.kept]) == ([], [ref])
    assert [where for where, _ in found.unsure if where == str(begun.run_dir / "state.json")]
    assert collect(begun).removed == []


def test_where_a_file_cannot_be_read_nothing_goes(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    put(begun, '"x"')
    real = files.open_regular

    def fails(path: str) -> int:
        if path.endswith("events.jsonl"):
            raise OSError(5, "Input/output error", path)
        return real(path)

    monkeypatch.setattr(files, "open_regular", fails)
    found = look(begun)
    assert (found.going, found.unsure) == ([], [(str(begun.run_dir / "events.jsonl"), "Input/output error")])


def test_other_peoples_files_are_left_alone(begun: Scene) -> None:
    ref = put(begun, '"x"')
    folder = begun.store / "blobs" / "sha256"
    outside = begun.root.parent / ("b" * 64)
    outside.write_text("x")
    for name in ("README", f"aa/{'b' * 64}", "bb/short", f"bb/{'B' * 64}", "zz/x.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    (folder / "bb" / ("b" * 64)).symlink_to(outside)
    assert [blob.ref for blob in collect(begun).removed] == [ref]
    assert outside.exists()
    assert (folder / "bb" / ("b" * 64)).is_symlink()
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 6


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fabers_runs_keep_what_they_refer_to(scene: Scene, layout: str) -> None:
    path = lay(scene, layout)
    raw = json.loads(path.read_text(encoding="utf-8"))
    stays, goes = put(scene, '"stays"'), put(scene, '"goes"')
    path.write_text(json.dumps({**raw, "context": {"a": stays}}))
    assert [blob.ref for blob in collect(scene).removed] == [goes]


def test_a_worktrees_faber_runs_count_from_everywhere(tmp_path: Path) -> None:
    main = repositories.make(tmp_path / "main")
    scene = Scene.__new__(Scene)
    scene.root, scene.store = main, main / ".loom"
    scene.store.mkdir()
    repositories.git(main, "worktree", "add", "--quiet", str(tmp_path / "linked"))
    ref = put(scene, '"x"')
    place = tmp_path / "linked" / ".fractary" / "runs" / "r" / "notes.json"
    place.parent.mkdir(parents=True)
    place.write_text(ref)
    assert run_blobs.look(scene.space(cwd=main), now=time.time()).going == []
    place.unlink()
    assert len(run_blobs.look(scene.space(cwd=main), now=time.time()).going) == 1


CONTENTS = st.sampled_from([f'"value {number}"' for number in range(8)])


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    stored=st.sets(CONTENTS),
    young=st.sets(CONTENTS),
    named=st.lists(st.tuples(st.sampled_from(sorted(PLACES)), CONTENTS), max_size=6),
    inside=st.lists(st.tuples(CONTENTS, CONTENTS), max_size=4),
)
def test_nothing_that_is_referred_to_ever_goes(
    begun: Scene,
    stored: set[str],
    young: set[str],
    named: list[tuple[str, str]],
    inside: list[tuple[str, str]],
) -> None:
    """Random runs that name random blobs in random places, which name others: what can be reached is there after it,
    and what cannot and is old is gone.
    """
    for path in [*begun.run_dir.rglob("extra-*"), *(begun.store / "blobs").rglob("*")]:
        if path.is_file():
            path.unlink()
    refs = {content: put(begun, content) for content in stored | young}
    for content in young:
        os.utime(Blobs(str(begun.store)).path(refs[content]))
    reached = {ref_of(content.encode()) for _, content in named}
    for number, (place, content) in enumerate(named):
        name = f"extra-{number}-{os.path.basename(place)}"
        (begun.run_dir / name).write_text(PLACES[place].format(ref=ref_of(content.encode())))
    chains = {put(begun, json.dumps([ref_of(a.encode()), ref_of(b.encode())])): (a, b) for a, b in inside}
    for number, ref in enumerate(sorted(chains)):
        if number % 2:
            (begun.run_dir / f"extra-chain-{number}").write_text(ref)
            reached |= {ref, *(ref_of(content.encode()) for content in chains[ref])}
    reached |= {refs[content] for content in young}
    every = {*refs.values(), *chains}
    collect(begun)
    assert {ref for ref in every if is_there(begun, ref)} == every & reached
