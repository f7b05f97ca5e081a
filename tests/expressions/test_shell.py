"""Placeholders in a shell command: the shell reads each value as the text that it is, and runs nothing of it."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomctl.expressions import placeholders
from tests.helpers.tables import each

ODD = "a 'b' \"c\" $HOME `id` \\ $(touch sprung) ; & | < > * ? [x] #y ~ !\n\té"
PLACES = [
    "printf %s {project_root}", 'printf %s "{project_root}"', "printf %s '{project_root}'",
    'x={project_root}; printf %s "$x"', 'x="${HOME}{project_root}"; printf %s "${x#"$HOME"}"',
    "printf %s \\'quoted\\' >/dev/null; printf %s {project_root}",
    "echo \"it's\" >/dev/null; printf %s '{project_root}'", "true && printf '%s' \"\"{project_root}''",
]  # fmt: skip


def in_a_shell(script: str) -> str:
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, timeout=30, check=True)
    return done.stdout.decode("utf-8", "surrogateescape")


@each("value", [ODD, "/a b/ü", "plain", "-n", "''", '"', "$", "\\", "a\\"])
@each("script", PLACES)
@pytest.mark.shows("so that a path or an id is never a command")
def test_a_value_is_one_word_wherever_it_stands(script: str, value: str) -> None:
    found = placeholders.expand_in_shell(script, {"project_root": value})
    assert (found.missing, found.refused) == ((), ())
    assert in_a_shell(found.text) == value


@settings(max_examples=60)
@given(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20),
    st.sampled_from(PLACES),
)
@pytest.mark.shows("so that a path or an id is never a command")
def test_any_value_is_read_as_it_is(value: str, script: str) -> None:
    assert in_a_shell(placeholders.expand_in_shell(script, {"project_root": value}).text) == value


@each(
    "script",
    [
        "echo $(cat {project_root})", "echo `cat {project_root}`", "cat <<X\n{project_root}\nX",
        "true # {project_root}", "echo ${x:-{project_root}}", "echo $'a'{project_root}",
        "echo \\{project_root}", "# a comment\n'{project_root}",
    ],
)  # fmt: skip
def test_a_place_that_cannot_be_told_takes_plain_values_alone(script: str) -> None:
    """There is no guessing what a shell would make of the others."""
    plain = placeholders.expand_in_shell(script, {"project_root": "/srv/shop-2_a.b"})
    assert plain.refused == ()
    assert "/srv/shop-2_a.b" in plain.text
    assert placeholders.expand_in_shell(script, {"project_root": "/srv/my shop"}).refused == ("project_root",)


def test_what_has_no_value_is_named_nul_is_refused_and_a_script_without_placeholders_stays() -> None:
    found = placeholders.expand_in_shell("a {work_id} {{run_id}} {run_id} {nobody}", {"run_id": "r1", "work_id": None})
    assert (found.missing, found.text) == (("work_id", "nobody"), "a {work_id} {run_id} r1 {nobody}")
    assert placeholders.expand_in_shell("a\0b", {}).refused == ("NUL",)
    assert placeholders.expand_in_shell("{run_id}", {"run_id": "a\0b"}).refused == ("run_id",)
    script = "awk '{print $1}' <<X | sed \"s/{}/{a,b}/\" # ${HOME}\nX"
    assert placeholders.expand_in_shell(script, {"run_id": "x y"}) == (script, (), ())
