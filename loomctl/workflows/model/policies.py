"""What a workflow says about results and approvals: result_handling and autonomy, at any level."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loomctl.kit.json.fields import Fields, only
from loomctl.kit.problems import choices, error, shown

if TYPE_CHECKING:
    from loomctl.kit.problems import Problem

LEVELS = ("dry-run", "assist", "guarded", "autonomous")
HANDLING = {
    "on_success": ("continue", "prompt"),
    "on_warning": ("continue", "prompt", "stop"),
    "on_failure": ("stop", "prompt", "continue"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultHandling:
    """What follows a result; None: not said here, so the phase, the workflow, then the default decides."""

    on_success: str | None = None
    on_warning: str | None = None
    on_failure: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Give it as a workflow file writes it."""
        return only(tuple(HANDLING), {key: getattr(self, key) for key in HANDLING}, self.extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class Autonomy:
    """How far a run goes by itself. require_approval_for: phase ids, step ids or `phase/id`."""

    level: str | None = None
    require_approval_for: tuple[str, ...] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    KEYS = ("level", "require_approval_for")

    def to_dict(self) -> dict[str, Any]:
        """Give it in its long form."""
        names = self.require_approval_for
        values = {"level": self.level, "require_approval_for": None if names is None else list(names)}
        return only(self.KEYS, values, self.extra)


def read_handling(fields: Fields, problems: list[Problem]) -> ResultHandling | None:
    """Read an object's `result_handling`; None if it has none."""
    if not fields.has("result_handling"):
        return None
    inner = Fields.opened(fields.raw("result_handling"), fields.path("result_handling"), problems)
    if inner is None:
        return None
    said: dict[str, str | None] = {}
    for key, known in HANDLING.items():
        value = inner.text(key)
        if value is not None and value.lstrip().startswith("/"):
            inner.fail("NOT_SUPPORTED", key, f"a slash command as {key} is not supported yet", choices(None, known))
        elif value == "retry" and key == "on_failure":
            hint = 'write "max_retries": 2 and "on_failure": "stop"; a failed step is tried again first'
            inner.fail("UNKNOWN_VALUE", key, "retry is said with max_retries", hint)
        elif value is not None and value not in known:
            inner.fail("UNKNOWN_VALUE", key, f"{shown(value)} is no {key}", choices(value, known))
        said[key] = value
    return ResultHandling(**said, extra=inner.rest())


def read_autonomy(fields: Fields, problems: list[Problem]) -> Autonomy | None:
    """Read a workflow's `autonomy`, a word or an object; FABER's pause_before_release is an approval of release."""
    if not fields.has("autonomy"):
        return None
    raw = fields.raw("autonomy")
    if isinstance(raw, str):
        raw = {"level": raw}
    inner = Fields.opened(raw, fields.path("autonomy"), problems)
    if inner is None:
        return None
    where = "level" if isinstance(fields.raw("autonomy"), dict) else ""
    level = inner.text("level")
    if level is not None and level not in LEVELS:
        place = inner.path(where) if where else inner.where
        problems.append(error("UNKNOWN_VALUE", place, f"{shown(level)} is no autonomy", choices(level, LEVELS)))
        level = None
    names = inner.texts("require_approval_for")
    before_release = inner.flag("pause_before_release")
    if before_release and "release" not in (names or ()):
        names = (*(names or ()), "release")
    if inner.raw("overrides"):
        inner.warn("IGNORED_FIELD", "overrides", "kept, but Loom does not act on overrides")
    extra = inner.rest()
    for key in ("pause_before_release", "overrides"):
        if inner.has(key):
            extra[key] = inner.raw(key)
    return Autonomy(level=level, require_approval_for=names, extra=extra)
