"""Of a very long answer the end is looked at, and never a part of an object for the object (D33)."""

from __future__ import annotations

from loomctl.flow.outcomes import answers
from loomctl.flow.outcomes.answers import LONGEST, part
from loomctl.flow.outcomes.directives import Reading
from tests.helpers.tables import each

DIRECTIVE = '{"outcome": "failed", "failure_reason": "naïve 🎉"}'


def read(text: str) -> Reading:
    return answers.understood({"kind": "prompt"}, text)


def filled(before: str, after: str, length: int, sign: str = "x") -> str:
    """Put a sign between two texts so often that the second and what fills it are so many characters."""
    return before + after + sign * (length - len(after))


@each("sign", ["x", "é", "🎉", "\n", "\\", '"', "{"])
def test_a_text_up_to_the_bound_is_looked_at_whole(sign: str) -> None:
    text = filled("", DIRECTIVE, LONGEST, sign)
    assert part(text) == (text, 0, None)
    reading = read(text)
    assert (reading.outcome, reading.failure_reason) == ("failed", "naïve 🎉")
    assert "PARTLY_READ" not in [one.code for one in reading.warnings]


@each("sign", ["x", "é", "🎉"])
def test_an_object_that_begins_at_the_border_counts_and_one_before_it_does_not(sign: str) -> None:
    reading = read(filled("…", DIRECTIVE, LONGEST, sign))
    assert reading.outcome == "failed"
    assert [one.code for one in reading.warnings] == ["PARTLY_READ"]
    assert (
        f"Loom looked for a result in the last {LONGEST:,} of {LONGEST + 1:,} characters" in reading.warnings[0].message
    )
    reading = read(filled("", DIRECTIVE, LONGEST + 1, sign))
    assert (reading.found, reading.outcome) == (False, None)
    assert [one.code for one in reading.warnings] == ["PARTLY_READ"]


@each(
    ("before", "after", "outcome"),
    [
        ('{"plan": ', DIRECTIVE + ', "more": 1}', None),
        ('{"plan": [', DIRECTIVE + ', {"b": 2}]}', None),
        ('{"plan": [', DIRECTIVE + "]} " + '{"outcome": "skipped"}', "skipped"),
        ('{"plan": ', DIRECTIVE + "} and so on {", None),
        ("prose ", DIRECTIVE + " and so on {", "failed"),
        ("prose ", DIRECTIVE + '\n{"a": {"b": {}}}\n', "failed"),
        ('{"a": 1} ', '{"n": 1}\n' * 20 + DIRECTIVE, "failed"),
    ],
)
def test_a_part_of_an_object_is_not_taken_for_it(before: str, after: str, outcome: str | None) -> None:
    """What stands before a closing brace that closes nothing may belong to an object whose beginning was not seen."""
    assert read(before + "x" * LONGEST + after).outcome == outcome


@each("fence", ["{}", " \n{}\n", "```json\n{}\n```", "```\n{}\n```\n"])
def test_an_object_that_is_all_of_a_text_may_have_any_length(fence: str) -> None:
    text = fence.replace("{}", '{"outcome": "skipped", "note": "' + "é" * LONGEST + '"}')
    looked = part(text)
    assert (looked.left, read(text).outcome) == (0, "skipped")
    assert looked.alone is not None
    step = {"output_schema": "@x.json", "schema": {"required": ["note"]}}
    assert answers.understood(step, text).output == looked.alone


@each("schema", ["routing", "@x.json"])
def test_an_answer_that_breaks_its_schema_is_told_what_was_looked_at(schema: str) -> None:
    text = DIRECTIVE + "x" * LONGEST
    reading = answers.understood({"output_schema": schema, "schema": {}}, text)
    assert [one.code for one in reading.errors][1:] == ["PARTLY_READ"]
    assert not reading.found


def test_a_fence_is_taken_off_that_holds_all() -> None:
    assert answers.part('```json\n{"outcome": "skipped"}\n```\n' + "x" * LONGEST + "\n```").alone is None
