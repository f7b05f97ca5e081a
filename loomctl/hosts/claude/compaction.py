"""Claude Code's hooks around a compaction: before it, after it, and where what it lost is put back.

A compaction goes PreCompact → SessionStart(compact) → PostCompact; the last has the summary.
"""

from __future__ import annotations

from loomctl.hosts.claude import events
from loomctl.kit.errors import LoomError
from loomctl.workflows.model.survival import KEY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from loomctl.runs.caller import Workspace

# Nothing is given here: a session that ends now never gets it.
_COMING = "what fits of them comes back with the next tool result or prompt"
_HELD = "HELD"  # another writes just now: what is owed is noted all the same


def before(space: Workspace, event: dict[str, Any]) -> str | None:
    """Tell the summariser, in plain text, what must be kept; note who asked for the compaction."""
    from loomctl.priming import announcements, prime_run
    from loomctl.runs import find
    from loomctl.runs.machine import known, parts
    from loomctl.workflows.model import triggers

    recorded = events.digested(space)
    is_manual = event.get("trigger") == "manual"
    untold = "; ".join(filter(None, (_settled(space, is_manual=is_manual), recorded)))
    found = find.find(space, over=False)
    if found.run_id is None or not known.is_known(found.run_id, space.store.folder):
        return None
    session_id = space.caller.session_id
    if session_id is not None:
        noted = {**space.local.primed(session_id), "compacting": "manual" if is_manual else "auto", "untold": untold}
        events.kept([], lambda: space.local.note_primed(session_id, noted))
    run = space.store.read(found.run_id)
    budget = prime_run.hook_budget(space, parts.MOST)
    coming = prime_run.prime(
        space, run, triggers.session_start("compact"), budget, may_write=found.may_write, force=True
    )
    remembered = prime_run.in_memory(space, run)
    back = [entry.id for entry in coming.loaded if entry.form == "full" or entry.id in remembered]
    told = announcements.for_the_summary(run, back)
    if (KEY not in run.plan and KEY not in run.state) or is_manual:
        return told  # after /compact the host shows the assistant this text again: the items would stand there twice
    from loomctl.priming.survival import survive  # most runs declare nothing

    return told + "".join(f"{line}\n" for line in survive.for_the_summary(space, run, coming))


def _settled(space: Workspace, *, is_manual: bool) -> str:
    """Judge a start whose turn has not ended; gives what its user is to be told with the next start.

    A person asks for a compaction between turns. What no turn has ended since, the host has not written down yet.
    """
    session_id = space.caller.session_id
    if session_id is None or space.local.opened(session_id) is None:
        return ""
    if is_manual:
        events.kept([], lambda: space.local.drop_opened(session_id))
        return ""
    from loomctl.priming.survival import receive  # most compactions come after a turn's end

    return events.kept([], lambda: receive.settle(space, patience=receive.PATIENCE)) or ""


def after(space: Workspace, event: dict[str, Any]) -> str | None:
    """Look into the summary for what must survive, and tell the user of what is lost; the assistant hears it later."""
    from loomctl.priming.survival import survive

    binding = space.local.binding(space.caller.session_id)
    if binding is None or not space.store.has(binding["run_id"]):
        return None
    if space.store.held(binding["run_id"], space.store.read_state(binding["run_id"])) is not None:
        return None  # it was taken over meanwhile, and what is lost here is nobody's loss (D64)
    try:
        judged = survive.judge(space, binding["run_id"], events.text(event, "compact_summary"))
    except LoomError as error:
        if error.code != _HELD:
            raise
        return events.context("PostCompact", None, f"Loom: no receipt of the compaction now: {error.what}")
    if judged is None or not judged.receipt.lost:
        return None
    lost, kept = len(judged.receipt.lost), len(judged.receipt.kept)
    line = f"the compaction lost {lost} of {lost + kept} items that must survive; {_COMING} (loomctl prove)"
    return events.context("PostCompact", None, line)


def put_back_at_a_prompt(space: Workspace, *, seen: bool) -> str | None:
    """Give what is owed with the user's prompt. seen: whether the transcript shows the compaction."""
    from loomctl.priming.survival import put_back

    if seen:
        events.kept([], lambda: put_back.confirm(space))
    return _put_back(space, "UserPromptSubmit") or None


def after_tool(event: dict[str, Any]) -> str:
    """Give what is owed with a tool's result."""
    space = events.workspace_of(event)
    if space is None:
        return ""
    from loomctl.priming import prime_run
    from loomctl.priming.survival import put_back

    return put_back.put_back(space, prime_run.hook_budget(space), "PostToolUse")


def _put_back(space: Workspace, event_name: str) -> str:
    from loomctl.priming import prime_run
    from loomctl.priming.survival import put_back

    text = put_back.put_back(space, prime_run.hook_budget(space), event_name)
    return events.context(event_name, text, None)
