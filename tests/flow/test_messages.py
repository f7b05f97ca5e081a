"""Final messages as assistants write them, and what a Stop makes of each (D27, D33, D34).

What a user would call an end ends, what talks to the user does not; where the words cannot tell, the row says why.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from loomctl.flow import turn_ends
from loomctl.flow.outcomes import answers
from loomctl.flow.turn_ends import ASK, END, KEEP, NOTHING, REPAIR, WAIT
from tests.helpers.tables import each

YES = '{"outcome": "succeeded"}'
NO = '{"outcome": "failed", "failure_reason": "two tests"}'


class Row(NamedTuple):
    """A message. outcome: with which it ends a step without a schema, "" with none of its own, None where it is kept.

    routing: what it leads to in a turn that Loom drives, at a step that asks for a routing directive.
    """

    name: str
    message: str
    outcome: str | None
    routing: str


ENDS = [
    Row("a directive alone", YES, "succeeded", END),
    Row("words and a directive", f"All 72 tests pass.\n\n{YES}", "succeeded", END),
    Row("a fence alone", f"```json\n{YES}\n```", "succeeded", END),
    Row("a fence of tildes", f"~~~\n{NO}\n~~~", "failed", END),
    Row("a rhetorical question before it", f"Why was it slow? The index was missing.\n{YES}", "succeeded", END),
    Row("a question answered by its directive", f"Should I go on? {YES}", "succeeded", END),
    Row("an offer behind it that asks nothing", f"{YES}\n\nTell me if you want the docs, too.", "succeeded", END),
    Row("two that contradict: the last", f"{NO}\nThat was before the fix. Now: {YES}", "succeeded", END),
    Row("two that contradict, the other way", f"{YES}\nNo, the linter: {NO}", "failed", END),
    Row("one in the middle, prose behind", f"Result: {NO}\n\nThe two tests need a database.", "failed", END),
    Row("bold", f"**{YES}**", "succeeded", END),
    Row("the end of a sentence", f"The result is {YES}.", "succeeded", END),
    Row("in a list", f"[{NO}, {YES}]", "succeeded", END),
    Row("Chinese", f"全部完成。{YES}", "succeeded", END),
    Row("German, umlauts within", '{"outcome": "failed", "failure_reason": "Prüfung läuft über"}', "failed", END),
    Row("lines that end as on Windows", f"Done.\r\n{YES}\r\n", "succeeded", END),
    Row("a byte order mark", f"\ufeff{YES}", "succeeded", END),
    Row("NUL before it", f"Done\0 {YES}", "succeeded", END),
    Row("half a character before it", f"\ud800 {YES}", "succeeded", END),
    Row("half a character in it", '{"outcome": "failed", "failure_reason": "\\ud800"}', "failed", END),
    Row("thousands of objects before it", '{"a": 1}\n' * 5000 + YES, "succeeded", END),
    Row("braces of a template before it", "Use {{name}} and ${x}. " + YES, "succeeded", END),
    Row("code before it", "function f() { return {a: 1}; }\n" + YES, "succeeded", END),
    Row("a doubled key: the last", '{"outcome": "failed", "outcome": "succeeded"}', "succeeded", END),
    Row("capitals of the documents", '{"outcome": "FAILURE"}', "failed", END),
    Row("partly", '{"outcome": "partially_succeeded"}', "partially_succeeded", END),
    Row("skipped, with more keys", '{"outcome": "skipped", "confidence": 0.9}', "skipped", END),
    Row("a label alone", '{"preferred_next_label": "[F] Fix"}', "", END),
    Row("context alone: it is a directive, too", 'Found it. {"context_updates": {"port": 80}}', "", END),
    # Nobody can tell these from a result: a directive counts wherever it stands (D33), and `loomctl undo` is the way.
    Row("another step's, quoted", f"> {NO}\n\nThis line of the other step is wrong; I go on.", "failed", END),
    Row("a fixture in a diff", f"```diff\n-{NO}\n+{YES}\n```\nI changed the fixture.", "succeeded", END),
]

KEPT = [
    Row("words", "All done.", None, KEEP),
    Row("nothing", "", None, NOTHING),
    Row("blanks", " \n\t\u00a0", None, NOTHING),
    Row("a question", "Which database shall it be, PostgreSQL or SQLite?", None, KEEP),
    Row("a question with JSON", 'Which?\n```json\n{"port": 80}\n```\n```json\n{"port": 443}\n```', None, KEEP),
    Row("a question about a directive", f"Shall I end the step with `{YES}`, or do you look first?", None, KEEP),
    Row("a draft and a question", f"It would be:\n\n```json\n{NO}\n```\n\nShall I end the step with that?", None, KEEP),
    Row("a directive and an offer that asks", f"{YES}\n\nWant me to look at the docs, too?", None, KEEP),
    Row("a Chinese question", f"{YES}\n还是先看看？", None, KEEP),  # noqa: RUF001
    Row("an Arabic question", f"{YES}\nهل أستمر؟", None, KEEP),  # noqa: RUF001
    Row("a plan in prose", "The outcome: succeeded, if the tests pass tomorrow.", None, KEEP),
    Row("a plan with a quoted word", 'The plan sets "outcome" once the tests pass.', None, KEEP),
    Row("a file with such a key", '```json\n{"outcome": {"enabled": true}}\n```\nI change it next.', None, REPAIR),
    Row("a service's answer", 'It says {"outcome": "ok", "id": 7}; I try it again.', None, REPAIR),
    Row("an outcome that is no word of Loom's", '{"outcome": "failure"}', None, REPAIR),
    Row("in other letters", '{"outcome": "Success"}', None, REPAIR),
    Row("one that may be a failure, with context", '{"outcome": "ko", "context_updates": {"n": 1}}', None, REPAIR),
    Row("an empty outcome", '{"outcome": ""}', None, REPAIR),
    Row("null", '{"outcome": null}', None, REPAIR),
    Row("a reason without a failure", '{"failure_reason": "no database"}', None, END),
    Row("one that sets nothing", '{"context_updates": {}}', None, END),
    Row("JSON5", "{outcome: 'succeeded'}", None, KEEP),
    Row("JavaScript with a comment", '{"outcome": "succeeded", // fine\n}', None, REPAIR),
    Row("a comma too many", '{"outcome": "succeeded",}', None, REPAIR),
    Row("a dict of Python's", "{'outcome': 'succeeded', 'failure_reason': None}", None, REPAIR),
    Row("a word of Python's", '{"outcome": "succeeded", "sure": True}', None, REPAIR),
    Row("no number", '{"outcome": "succeeded", "context_updates": {"x": NaN}}', None, REPAIR),
    Row("cut off", '{"outcome": "succeeded", "context_updates": {"a": ', None, REPAIR),
    Row("quotes of a word processor", "{“outcome”: “succeeded”}", None, REPAIR),
    Row("a blank that is none", '{\u00a0"outcome": "succeeded"}', None, REPAIR),
    Row("a blank of no width", '{\u200b"outcome": "succeeded"}', None, REPAIR),
    Row("NUL within", '{"outcome": "succee\0ded"}', None, REPAIR),
    Row("escaped", '"{\\"outcome\\": \\"succeeded\\"}"', None, REPAIR),
    Row("in a text of an object", '{"result": "{\\"outcome\\": \\"succeeded\\"}"}', None, KEEP),
    Row("inside another object", '{"result": {"outcome": "succeeded"}}', None, KEEP),
    Row("a key in other letters", '{"Outcome": "succeeded"}', None, KEEP),
    Row("YAML", "outcome: succeeded", None, KEEP),
    Row("XML", "<outcome>succeeded</outcome>", None, KEEP),
    Row("HTML", "{&quot;outcome&quot;: &quot;succeeded&quot;}", None, KEEP),
    Row("the host: overloaded", 'API Error: 529 {"type":"error","error":{"type":"overloaded_error"}}', None, KEEP),
    Row("the host: too long", "Prompt is too long", None, KEEP),
    Row("the host: interrupted", "[Request interrupted by user]", None, KEEP),
    Row("the host: nothing asked", "No response requested.", None, KEEP),
    Row("the host: its limit", "Claude AI usage limit reached|1760000000", None, KEEP),
]

ROWS = [pytest.param(row, id=row.name) for row in (*ENDS, *KEPT)]


def at_a_stop(message: str, schema: str | None = None, **known: object) -> str:
    step = {"kind": "agent", "key": "build/one", "output_schema": schema}
    reading = answers.understood(step, message)
    stop = turn_ends.Stop(
        level="guarded",
        spoken=bool(message.strip()),
        questions=reading.found and turn_ends.questions(message),
        found=answers.how(step, reading),
        schema=schema is not None,
        repairs_left=2,
        blocks_left=8,
    )
    return turn_ends.decide(stop._replace(**known))  # type: ignore[arg-type] # the names are a Stop's


@each("row", ROWS)
def test_a_message_means_what_its_user_would_say(row: Row) -> None:
    """In the user's turn and in Loom's, under every autonomy, in plan mode; and as an answer to a routing schema."""
    kept = KEEP if row.message.strip() else NOTHING
    ends = END if row.outcome is not None else kept
    for driven in (False, True):
        assert at_a_stop(row.message, driven=driven) == ends
        assert at_a_stop(row.message, driven=driven, planning=True) == kept
        assert at_a_stop(row.message, driven=driven, level="assist") == kept
        assert at_a_stop(row.message, driven=driven, level="dry-run") == kept
    assert at_a_stop(row.message, level="autonomous") == ends
    assert at_a_stop(row.message, level="autonomous", driven=True) == (END if row.outcome is not None else ASK)
    again = at_a_stop(row.message, level="autonomous", driven=True, asked=True)
    assert again == (END if row.outcome is not None else WAIT)
    assert at_a_stop(row.message, "routing", driven=True) == row.routing
    assert at_a_stop(row.message, "routing") == (END if row.routing == END else kept)
    if row.outcome is not None:
        assert (answers.understood({"kind": "agent"}, row.message).outcome or "") == row.outcome


def test_there_are_many() -> None:
    assert len(ROWS) >= 70
    assert len({row.message for row in (*ENDS, *KEPT)}) == len(ROWS)
