"""What the fleet's commands take and tell, without a worker."""

from __future__ import annotations

import json

import pytest

from tests.helpers.scenes import Ended, Json, Scene


@pytest.fixture
def project(scene: Scene) -> Scene:
    scene.workflow()
    return scene


def typed(project: Scene, *words: str, given: str | None = None) -> Ended:
    """Run a command of the fleet as a person types it in a terminal."""
    return project.loomctl("fleet", *words, session=None, given=given)


def add(project: Scene, *lines: object, code: int = 0) -> Json:
    given = "".join(json.dumps(line) + "\n" for line in lines)
    return typed(project, "add", "--from", "-", "--workflow", "tiny", "--json", given=given).ends(code).json


def test_a_list_is_read_from_standard_input_and_told_as_the_queue_has_it(project: Scene) -> None:
    runs = add(project, {"work": "mend it", "key": "a"}, {"work": "test it", "after": "a"})["runs"]
    assert [one["state"] for one in runs] == ["queued", "after"]
    assert all(one["since"].endswith("Z") and one["not_before"] is None for one in runs)
    (later,) = add(project, {"work": "ship it", "after": runs[0]["handle"]})["runs"]
    assert later["after"] == [runs[0]["run_id"]]


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        ([{"work": "mend it"}, {"work": "test it", "after": "nobody"}], "standard input:2"),
        ([{"work": "mend it", "after": "b"}, {"work": "test it", "key": "b"}], "standard input:1"),
        ([], "standard input"),
    ],
)
def test_a_list_that_is_wrong_adds_nothing(project: Scene, lines: list[object], where: str) -> None:
    error = add(project, *lines, code=2)["error"]
    assert (error["code"], error["where"]) == ("BAD_ORDER", where)
    assert typed(project, "--json").ends().json["counts"] == {}


def test_a_list_that_is_not_there_is_named(project: Scene) -> None:
    error = typed(project, "add", "--from", "nowhere.jsonl", "--json").ends(2).json["error"]
    assert (error["code"], error["where"]) == ("UNREADABLE", "nowhere.jsonl")


def test_several_runs_are_steered_whatever_becomes_of_one(project: Scene) -> None:
    runs = add(project, {"work": "mend it"}, {"work": "test it"})["runs"]
    names = [runs[0]["handle"], "nobody", runs[1]["handle"]]
    told = typed(project, "pause", *names, "--json").ends(3).json["runs"]
    assert [one.get("done") for one in told] == ["paused", None, "paused"]
    assert told[1]["error"]["code"] == "NO_SUCH_RUN"
    ended = typed(project, "resume", *names[:2]).ends(3)
    assert f"{names[0]}: queued" in ended.stdout
    assert "nobody: NO_SUCH_RUN" in ended.stderr


def test_a_workflow_that_goes_on_already_is_said_to(project: Scene) -> None:
    add(project, {"work": "mend it"})
    assert typed(project, "resume", "tiny").ends().stdout == "the workflow tiny: is not paused\n"


def test_without_a_verb_it_takes_the_options_of_status(project: Scene) -> None:
    add(project, {"work": "mend it"})
    plain, named = (typed(project, *words).ends().stdout for words in ((), ("status",)))
    assert plain == named
    assert "no worker lives" in plain
    assert "BAD_QUEUE" in typed(project, "--queue", "mysql://x").ends(2).stderr
    assert "work" in typed(project, "--help").ends().stdout
