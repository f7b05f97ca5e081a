"""Why a step came next: the reasons that a visit keeps. Pure."""

from __future__ import annotations

# With the last three there is no way on: the run is over, or fails.
CONDITION, LABEL, SUGGESTED, UNCONDITIONAL = "condition", "label", "suggested", "unconditional"
ON_FAILURE, ORDER, RETRY, RETRY_TARGET = "on_failure", "order", "retry", "retry_target"
ENDED, NONE, MAX_VISITS = "end", "none", "max_visits"
REASONS = (
    RETRY,
    CONDITION,
    LABEL,
    SUGGESTED,
    UNCONDITIONAL,
    ON_FAILURE,
    ORDER,
    RETRY_TARGET,
    ENDED,
    NONE,
    MAX_VISITS,
)
END = "end"
FAILED = "failed"
