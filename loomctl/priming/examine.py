"""Which artifacts that a plan declares are due, and what can be given of each: condition, path, file (D11-D18)."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple
from loomctl.kit.text.fences import utf16_units, visible
from loomctl.kit.text.secrets import mask, masked_line
from loomctl.priming import artifact_files
from loomctl.priming.packing import Piece
from loomctl.priming.slip import DEFER, ERROR, LOAD, SKIP, WHOLE, Entry
from loomctl.runs import artifact_paths
from loomctl.runs.artifact_paths import is_inside, real
from loomctl.workflows.triggers import fires

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

    from loomctl.expressions.conditions import Answer
    from loomctl.priming.artifact_files import Reading
    from loomctl.priming.memory_of_session import Given
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run
    from loomctl.workflows.triggers import Event

_LONGEST_CHAIN = 4  # diffs that build on one another; then the artifact is given whole again


class Verdict(NamedTuple):
    """decision: load, skip, defer or error; reason: a code (`trigger`, `condition_false`, …)."""

    decision: str
    reason: str


def wanted(
    artifact: Mapping[str, Any], *, event: Event, phase: str | None, only: Collection[str] | None, condition: str
) -> Verdict:
    """Decide from the declaration alone whether an artifact is due; its file is not looked at yet.

    artifact: an entry of `plan.json`'s `artifacts`. only: ids asked for by name, None for all.
    condition: `true`, `false`, or `unknown` where it takes the environment and there is none (D12).
    """
    if only is not None and artifact["id"] not in only:
        return Verdict(SKIP, "not_asked_for")
    if artifact.get("when") == "phase" and artifact.get("phase") != phase:
        return Verdict(SKIP, "other_phase")
    fired = fires(artifact.get("triggers") or (), event) is not None
    if not fired and not event.is_manual and only is None:
        return Verdict(SKIP, "not_triggered")
    if condition == "unknown":
        return Verdict(DEFER, "needs_environment")
    if condition == "false":
        return Verdict(SKIP, "condition_false")
    return Verdict(LOAD, "trigger" if fired and only is None else "manual")


def fresh(given: Given | None, sha256: str, *, force: bool) -> Verdict | None:
    """Compare with what this session has: skip what stands in it in full and unchanged, name what changed (D15).

    None: nothing to add to the verdict of `wanted`.
    """
    if given is None or force:
        return None
    if given.sha256 != sha256:
        return Verdict(LOAD, "changed")
    return Verdict(SKIP, "fresh") if given.form in WHOLE else None


class Examiner:
    """Examines a run's artifacts at an event, each file once; gathers warnings.

    artifacts: those that are looked at, by default what is due of the plan's.
    """

    def __init__(
        self,
        space: Workspace,
        run: Run,
        event: Event,
        *,
        only: Collection[str] | None = None,
        artifacts: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self._space, self._run, self._event, self._only = space, run, event, only
        self._unknown: dict[str, str] = {}
        self._known = artifact_paths.placeholder_values(space.project, run)
        self._roots = artifact_files.roots_of(space, run)
        made_of = run.plan.get("faber")
        stands_in = made_of.get("stands_in") if isinstance(made_of, dict) else ()
        self.warnings: list[tuple[str, str]] = [
            *space.settings.warnings,
            *(("STAND_IN", text) for text in stands_in or () if isinstance(text, str)),
        ]
        if artifacts is None:
            artifacts = [one for one in run.plan["artifacts"] if self._wanted(one).decision == LOAD]
        self._answers = self._ask_the_environment(artifacts)

    def _wanted(self, artifact: Mapping[str, Any], condition: str = "true") -> Verdict:
        phase = self._run.state.get("current_phase")
        return wanted(artifact, event=self._event, phase=phase, only=self._only, condition=condition)

    def verdict(self, artifact: Mapping[str, Any]) -> Verdict:
        """Decide whether an artifact is due; its condition is evaluated only where it would be."""
        declared = self._wanted(artifact)
        return self._wanted(artifact, self.condition(artifact)) if declared.decision == LOAD else declared

    def _ask_the_environment(self, artifacts: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Answer]:
        """Ask once for all conditions and paths that the standard library cannot answer (D12)."""
        asked: list[tuple[str, str]] = []
        for artifact in artifacts:
            if artifact.get("condition") and self._simple_condition(artifact) is None:
                asked.append(("condition", artifact["condition"]))
            if artifact.get("path_from_state") and artifact.get("path_steps") is None:
                asked.append(("path", artifact["path_from_state"]))
        if not asked:
            return {}
        from loomctl.expressions import engine
        from loomctl.expressions.conditions import Question

        python = self._space.caller.environment_python
        questions = [Question(kind, source) for kind, source in asked]
        answers = engine.answer(questions, {"state": self._run.state}, environment_python=python)
        return dict(zip(asked, answers, strict=True))

    def _simple_condition(self, artifact: Mapping[str, Any]) -> str | None:
        if not artifact.get("condition"):
            return "true"
        if artifact.get("condition_code") is None:
            return None
        from loomctl.expressions.conditions import evaluate  # most artifacts have none
        from loomctl.expressions.javascript import ConditionThrew, NeedsEngine

        try:
            return "true" if evaluate(artifact["condition_code"], {"state": self._run.state}) else "false"
        except NeedsEngine:
            return None
        except ConditionThrew as error:
            self._warn_threw(artifact, str(error))
            return "false"

    def _warn_threw(self, artifact: Mapping[str, Any], message: str) -> None:
        text = (
            f"{artifact['id']}: {masked_line(artifact['condition'], 200)} — {masked_line(message, 200)}; "
            "Loom takes it as false"
        )
        if ("CONDITION_THREW", text) not in self.warnings:
            self.warnings.append(("CONDITION_THREW", text))

    def condition(self, artifact: Mapping[str, Any]) -> str:
        """Give `true`, `false` or `unknown`."""
        simple = self._simple_condition(artifact)
        if simple is not None:
            return simple
        answer = self._answers[("condition", artifact["condition"])]
        if answer.status == "needs_environment":
            self._unknown[artifact["id"]] = f"Loom could not evaluate its condition: {answer.message}"
            return "unknown"
        if answer.status == "threw":
            self._warn_threw(artifact, answer.message)
            return "false"
        return "true" if answer.value else "false"

    def applies(self, artifact: Mapping[str, Any]) -> bool:
        """Tell whether an artifact's condition may hold and the state may have its path; its file is not looked at."""
        problem = self._declared(artifact)[1]
        return self.condition(artifact) != "false" and (problem is None or problem[0] != "missing")

    def examine(
        self, artifact: Mapping[str, Any], verdict: Verdict, given: Given | None, *, force: bool
    ) -> tuple[Entry, Piece | None]:
        """Read an artifact that is due and say what can be given of it."""
        required = bool(artifact.get("required"))
        bare = Entry(artifact["id"], verdict.decision, verdict.reason, None, None, None, None, required, "")
        if verdict.decision == SKIP:
            return bare, None
        if verdict.decision == DEFER:
            note = self._unknown.get(artifact["id"], "Loom could not evaluate its condition")
            return bare._replace(message=note), self._pointer(artifact, note)
        if artifact["type"] in artifact_files.ASSISTANT_TYPES:
            note = f"Loom cannot load it; to load it, {self._wish(artifact)}"
            return bare._replace(decision=DEFER, reason="assistant", message=note), self._pointer(artifact, note)
        declared, problem = self._declared(artifact)
        if problem is not None:
            decision = DEFER if problem[0] == "needs_environment" else ERROR
            entry = bare._replace(decision=decision, reason=problem[0], message=problem[1])
            return entry, self._pointer(artifact, problem[1])
        reading = artifact_files.read(artifact, declared, self._known, self._roots, self._run)
        for code, message in reading.warnings:
            self.warnings.append((code, f"{artifact['id']}: {message}"))
        entry = bare._replace(path=reading.path, bytes=reading.bytes, sha256=reading.sha256 or None, of=reading.of)
        if not reading.of and not reading.rendered and not is_inside(reading.absolute, real(self._run.folder)):
            entry = entry._replace(file=reading.absolute)
        if reading.text is None:
            if not required:
                self.warnings.append((reading.problem.upper(), f"{artifact['id']}: {reading.path}: {reading.message}"))
            entry = entry._replace(decision=ERROR, reason=reading.problem, message=reading.message)
            return entry, self._pointer(artifact, f"{reading.problem}: {reading.message} ({reading.path})")
        changed = fresh(given, reading.sha256, force=force)
        if changed is not None:
            entry = entry._replace(decision=changed.decision, reason=changed.reason)
            if changed.decision == SKIP:
                return entry, None
        piece = self._piece(artifact, reading, required=required)
        return entry, piece if force else self._with_diff(piece, given, reading.sha256)

    def _with_diff(self, piece: Piece, given: Given | None, sha256: str) -> Piece:
        """Say what changed since the conversation was given all of it, if it was and that text is still known."""
        if given is None or given.form not in WHOLE or given.sha256 == sha256:
            return piece
        if len({needed.partition("-")[0] for needed in given.needs}) >= _LONGEST_CHAIN:
            return piece
        from loomctl.runs.machine import session_notes  # only for what changed

        base = session_notes.read_text(self._space.store.local, given.text)
        if base is None or piece.text is None:
            return piece
        from loomctl.priming import artifact_files

        return piece._replace(
            diff=artifact_files.diff_within(base, piece.text, utf16_units(piece.text) // 3), base=given.sha256
        )

    def _declared(self, artifact: Mapping[str, Any]) -> tuple[str, tuple[str, str] | None]:
        """Give the artifact's path or command as declared, or `(reason, message)` for why there is none."""
        source = artifact.get("path_from_state")
        if not source:
            return str(artifact.get("path") or artifact.get("command") or ""), None
        if artifact.get("path_steps") is not None:
            from loomctl.expressions import state_paths  # most artifacts name theirs

            value = state_paths.read(artifact["path_steps"], self._run.state)
        else:
            answer = self._answers[("path", source)]
            if answer.status == "needs_environment":
                return "", ("needs_environment", f"Loom could not read {source}: {answer.message}")
            if answer.status == "threw":
                return "", ("missing", f"Loom could not read {source} from the state: {answer.message}")
            value = answer.value
        if isinstance(value, str) and value:
            return value, None
        return "", ("missing", f"the state has no path at {source}")

    def _wish(self, artifact: Mapping[str, Any]) -> str:
        from loomctl.expressions import placeholders

        wish = placeholders.expand(str(artifact.get("command") or artifact["id"]), self._known).text
        wish = masked_line(wish, 200)
        return f"use the skill `{wish}`" if artifact["type"] == "skill" else f"run `{wish}`"

    def _pointer(self, artifact: Mapping[str, Any], note: str) -> Piece:
        line = f"{masked_line(artifact['id'], 80)}: {masked_line(note, 300)}"
        return Piece(artifact["id"], "", None, "", line, bool(artifact.get("required")))

    def _piece(self, artifact: Mapping[str, Any], reading: Reading, *, required: bool) -> Piece:
        shown = visible(reading.text or "")
        text, masked = mask(shown)
        if masked:
            self.warnings.append(("SECRETS_MASKED", f"{artifact['id']}: {masked} masked"))
        path = masked_line(reading.path, 200)
        read = f"read {path}" if reading.absolute else f"run `{path}`"
        if reading.absolute and reading.path.startswith("{plugin_root}"):
            read = f"read {masked_line(reading.absolute, 300)}"
        size = f"{reading.bytes:,} bytes, {reading.sha256[:8]}"
        pointer = f"{masked_line(artifact['id'], 80)}: not in full: no room ({size}); {read}"
        markdown = reading.kind == "digest" or path.endswith((".md", ".markdown"))
        info = "json" if reading.kind == "json" else "markdown" if markdown else "text"
        heading = f"{masked_line(artifact['id'], 80)}: {path}" + (" (rendered)" if reading.rendered else "")
        # What Loom's own commands can say again comes after what the project alone can say.
        own = reading.kind == "digest" or reading.path.startswith("{plugin_root}")
        # Of a mask that takes several lines' place nobody can tell which lines follow it.
        numbered = not (reading.rendered or reading.of) and shown.count("\n") == text.count("\n")
        return Piece(artifact["id"], heading, text, info, pointer, required, read, numbered, own, of=reading.of)
