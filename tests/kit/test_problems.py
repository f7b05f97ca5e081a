"""Findings are named, placed and gathered so that people can mend a file in one go."""

from __future__ import annotations

from loomctl.kit.problems import at, choices, error, in_file, nearest, refusal, shown, warning
from tests.helpers.tables import each

PATHS = [
    ((), "$"),
    (("phases", "build", "steps", 0, "kind"), "$.phases.build.steps[0].kind"),
    (("my phase",), "$['my phase']"),
    (("it's",), '$["it\'s"]'),
    (("a.b", "line\nbreak"), "$['a.b']['line\\nbreak']"),
    (("",), "$['']"),
]


@each(("keys", "expected"), PATHS)
def test_a_path_leads_to_its_place(keys: tuple[str | int, ...], expected: str) -> None:
    assert at("$", *keys) == expected


def test_values_are_shown_on_one_short_line() -> None:
    assert shown("a\n\x1b[31m") == r"'a\n\x1b[31m'"
    assert len(shown("x" * 1000)) <= 60
    assert (shown(None), shown(True), shown([1]), shown({}), shown(1.5)) == (
        *("null", "true", "a list", "an object", "a number"),
    )


def test_hints_stay_short() -> None:
    known = [f"step-{index}" for index in range(100)]
    assert choices("step-77x", known).startswith("did you mean step-77?")
    assert choices(None, known).endswith(", …")
    assert nearest("entirely different", known) is None


def test_one_error_says_all() -> None:
    """Warnings refuse nothing; errors of one kind keep their code; a long list is cut and points to check."""
    assert refusal([warning("W", "$", "mild")], what="no", where="f.json") is None
    one = refusal([warning("W", "$", "mild"), error("E", "$.a", "bad", "mend it")], what="no", where="f.json")
    assert one is not None
    told = {"message": "no", "where": "f.json", "why": "$.a: bad; mend it", "hint": "loomctl check f.json"}
    assert one.to_dict() == {"code": "E", **told}
    many = refusal(
        [error("E", f"$[{index}]", "bad") for index in range(20)] + [error("F", "$", "worse")],
        what="no",
        where="f.json",
    )
    assert many is not None
    assert (many.code, many.hint) == ("INVALID_WORKFLOW", "loomctl check f.json")
    assert "and 9 more" in many.why


def test_another_file_is_named_before_the_path() -> None:
    assert in_file("base.json", [error("E", "$.a", "bad")])[0].where == "base.json: $.a"
