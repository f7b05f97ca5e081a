"""Driving a run by a command that knows nothing of Loom: a step on standard input, its result on standard output (D73).

Here the driver does what hooks and an assistant do elsewhere: it opens the step, gives all that its conversation must
have, for each command is a new one, and ends the step with what came.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from loomctl.drive import ends, rules, signs
from loomctl.drive.asked import NOW
from loomctl.drive.dialect import BY_HAND
from loomctl.drive.drive import Driver
from loomctl.drive.rules import Turn
from loomctl.flow import advance, preambles, prompts, resume
from loomctl.flow.commands import command_steps
from loomctl.kit.errors import LoomError
from loomctl.kit.text.fences import utf8_bytes
from loomctl.priming import memory_of_session, messages, prime_run
from loomctl.priming.slip import Budget
from loomctl.runs import stages
from loomctl.runs.machine import tells
from loomctl.runs.model import frozen_plan, visits
from loomctl.workflows import branches, triggers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from loomctl.drive.leash import Leash
    from loomctl.drive.process import Order, Worker
    from loomctl.drive.rules import Stand
    from loomctl.drive.seen import Seen
    from loomctl.drive.sharing import Sharing
    from loomctl.drive.watch import Limits, Watch
    from loomctl.flow.commands.run_commands import Pending
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

ROOM = 200_000  # UTF-8 bytes of the files that a step must have; what is longer is named with its path
_MOST = 16 << 20  # bytes of a result
_ENDING = """Answer with the step's result: the work done, the decisions, what is still open. Loom takes all of it.

If you cannot do it, let your answer hold {"outcome": "failed", "failure_reason": "..."}."""
_AGAIN = "Loom did not take your last answer. Give all of it again, corrected."


class Command:
    """The command, as the driver's loop meets an assistant: what it prints is no sign but of life."""

    PROGRAM = ""
    INSTALL = "behind -- stands a command as a shell would find it"
    TAKES_RULES = TELLS_COST = NAMES_CONVERSATIONS = False
    WIDENED = SILENT = ""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self.printed = bytearray()

    def command(self, order: Order) -> list[str]:  # noqa: ARG002 - it is the same for each
        """Give the command as it was called."""
        self.printed.clear()
        return self._words

    def read(self, line: bytes) -> Iterator[signs.Sign]:
        """Keep what it printed."""
        self.printed += line[: max(0, _MOST + 1 - len(self.printed))]
        return iter(())


class _Step(NamedTuple):
    """The visit that is worked on. text: all that a command is given."""

    stage: str
    branch: str | None
    text: str
    environ: dict[str, str]


class ByHand(Driver):
    """The same loop, with the driver in the assistant's place."""

    def __init__(
        self,
        space: Workspace,
        run_id: str,
        words: Sequence[str],
        limits: Limits,
        *,
        word: str,
        environ: Mapping[str, str],
        show: Callable[[Seen], None] = lambda _: None,
        leash: Leash | None = None,
        sharing: Sharing | None = None,
    ) -> None:
        self._command = Command(words)
        super().__init__(
            space, run_id, BY_HAND, self._command, limits, word=word, environ=environ, show=show, leash=leash,
            sharing=sharing,
        )  # fmt: skip
        self._around = dict(environ)
        self._step: _Step | None = None
        self._repair = ("", "")  # the stage, and what was not as it must be

    def _opened(self, run: Run, was: Stand) -> tuple[Run, Stand, bool]:
        """Open the next step, command steps done; gives whether there is one for a command."""
        self._step = None
        if self._turn == 0 or run.state["status"] not in ("pending", "in_progress"):
            run = resume.resume(self._space, self._run_id).run
        if run.state["status"] not in ("pending", "in_progress"):
            return run, self._stand(run), False
        branch = _branch(run)
        try:
            driven = advance.next_step(self._space, self._run_id, self._wait, branch=branch)
        except LoomError as error:
            if error.code != "INTERRUPTED":
                raise
            return run, was, False
        if branch is None and driven.pending is None and (branch := _branch(driven.run)) is not None:
            driven = advance.next_step(self._space, self._run_id, self._wait, branch=branch)
        entry = visits.open_visit(driven.run.state)
        place = frozen_plan.place_of(driven.run.plan, entry["step_id"]) if entry else None
        now = self._space.store.read(self._run_id)
        plays = driven.pending is None and driven.move.kind == "step" and entry is not None and place is not None
        if plays and entry is not None and place is not None and not frozen_plan.is_human(place.step):
            folder = stages.folder(driven.run.folder, entry["stage"])
            around = command_steps.environment(self._run_id, entry["step_id"], folder, self._around)
            self._step = _Step(entry["stage"], branch, self._told(driven.run, branch), around)
        return now, self._stand(now), self._step is not None

    def _wait(self, _: Pending) -> None:
        """Look on while a command of the run's own is waited for. Raises KeyboardInterrupt where that is to end."""
        self._look(None)
        if self.asked.how_soon() == NOW or self._spent(self._space.store.read(self._run_id)):
            raise KeyboardInterrupt

    def _told(self, run: Run, branch: str | None) -> str:
        """Give what a step's conversation must have, then the step, then how it is answered."""
        entry = visits.open_visit(run.state)
        assert entry is not None  # the caller looked
        place = frozen_plan.place_of(run.plan, entry["step_id"])
        assert place is not None
        above = self._space._replace(upcoming=lambda *_, **__: "## Next\n\nThe step that stands below.")
        budget = Budget(max(ROOM, self._space.settings.command_budget), utf8_bytes)
        made = prime_run.prime(above, run, triggers.manual(), budget, may_write=True, force=True)
        if branch is None:
            made = memory_of_session.record(self._space, self._run_id, made)
        step, _ = preambles.opening(self._space, run, run.state, place, entry["visit"])
        said = messages.give(self._conversation(self._turn + 1), self._run_id, messages.COMMAND, ROOM)
        parts = [made.text, prompts.told(step), said.text, _ENDING]
        if self._repair[0] == entry["stage"]:
            parts += [_AGAIN, prompts.told(self._repair[1])]
        return "\n\n".join(part.strip() for part in parts if part) + "\n"

    def _conversation(self, turn: int) -> Workspace:
        """Give the workspace of the turn's own conversation: what its user tells is given to each that is new (D76)."""
        caller = self._space.caller
        return self._space._replace(caller=caller._replace(session_id=f"{caller.session_id}-{turn}"))

    def _ordered(self, order: Order) -> tuple[Order, Mapping[str, str]]:
        assert self._step is not None  # no turn is played without one
        return order._replace(prompt=self._step.text), self._step.environ

    def _outcome(self, worker: Worker, watch: Watch, why: str) -> Turn:
        """End the step with what came of a command that ended well."""
        if why:
            return ends.of(watch, why, "", time.time())
        code, words = worker.exit_code, worker.last_words()
        if code != 0:
            ended = f"the command ended with exit code {code}" if code is not None else "the command was killed"
            return Turn(rules.INFRA, f"{ended}{f': {words.splitlines()[-1][:200]}' if words else ''}", crashed=True)
        if len(self._command.printed) > _MOST:
            return Turn(rules.FINE, f"the command printed more than {_MOST:,} bytes")
        said = self._command.printed.decode("utf-8", "replace")
        watch.saw(signs.Said(said), time.monotonic())
        if not said.strip():
            return Turn(rules.FINE, "the command printed no result", said=words)
        self._end_step(said)
        return Turn(rules.FINE, said=said)

    def _end_step(self, said: str) -> None:
        step = self._step
        assert step is not None
        try:
            driven = advance.done(self._space, self._run_id, response=said, branch=step.branch, stage=step.stage)
        except LoomError as error:
            if error.code != "NO_SUCH_STAGE":  # somebody undid it meanwhile
                raise
            return
        self._repair = (step.stage, driven.repair) if driven.ended is None else ("", "")
        if tells.are_there(self._space.store.local, self._run_id):
            state = self._space.store.read_state(self._run_id)
            messages.review(self._conversation(self._turn), self._run_id, state, messages.COMMAND)


def _branch(run: Run) -> str | None:
    """Name the first branch of an open parallel step that has not ended; they are worked on one after the other."""
    fan = branches.fan(run.state)
    left = branches.open_records(fan) if fan is not None else []
    return str(left[0]["id"]) if left else None
