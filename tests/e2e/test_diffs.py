"""What changed comes to the real assistant as a diff; where its base is gone, whole (D15)."""

import pytest

from tests.e2e.scenes import SPEC, InRun, given_at_starts, write_spec
from tests.priming.test_text_diff import applied

ONCE = SPEC.replace("Decision 15: element 15", "Decision 15: the footer")
TWICE = ONCE.replace("Decision 22: element 22", "Decision 22: the header")


def blocks(text: str, info: str) -> list[str]:
    return [part.partition("\n```")[0] + "\n" for part in text.split(f"```{info}\n")[1:]]


@pytest.mark.quick
def test_a_change_comes_as_a_diff_and_whole_after_compact_and_clear(in_run: InRun) -> None:
    assistant, first = in_run
    (whole,) = given_at_starts(assistant.run("go on", resume=first.session_id))
    assert SPEC in blocks(whole, "markdown")

    text = SPEC
    for changed in (ONCE, TWICE):
        write_spec(assistant.project, changed)
        told = given_at_starts(assistant.run("go on", resume=first.session_id))[-1]
        assert "### specification: specs/dark-mode.md\nChanges in the file since you were given it" in told
        (diff,) = blocks(told, "diff")
        assert applied(text, diff) == changed
        assert len(diff) < len(changed) / 3
        assert changed not in told
        text = changed

    assistant.run("/compact", resume=first.session_id)
    after = assistant.run("go on", resume=first.session_id)
    assert TWICE in blocks(given_at_starts(after)[0], "markdown")
    assert not any(blocks(told, "diff") for told in given_at_starts(after))

    write_spec(assistant.project, SPEC)  # its base now is what came after the compaction
    told = given_at_starts(assistant.run("go on", resume=first.session_id))[-1]
    assert [applied(TWICE, diff) for diff in blocks(told, "diff")] == [SPEC]

    after = assistant.run("go on", resume=assistant.run("/clear", resume=first.session_id).session_id)
    assert SPEC in blocks(given_at_starts(after)[0], "markdown")
    assert not any(blocks(told, "diff") for told in given_at_starts(after))
