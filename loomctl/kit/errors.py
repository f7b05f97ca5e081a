"""The one class of error that Loom shows to people, and the exit codes (D52)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_NO_RUN = 3
EXIT_MISSING = 4
EXIT_INVALID = 5
EXIT_HELD = 6
EXIT_SKEW = 7
EXIT_SETUP = 8
EXIT_WAITS = 9  # a drive ended where a person, or a time, is waited for
EXIT_LIMIT = 10  # a drive reached a limit that its user had set
EXIT_BUG = 70
ON_INTERRUPT = 130

UPDATE = "loomctl doctor # it says how to update"


class LoomError(Exception):
    """Something a person can mend: what happened, where, why, and a hint that can be pasted (D52).

    hint: one command line that a shell runs and that mends it or shows more; what else is to be said is the why's.
    code: a stable upper-case word for scripts (`PATH_ESCAPE`); where: a file and, if known, a JSON path;
    exit_code: one of the EXIT_* values. meant: the run, and the stage, that may be meant, for whoever knows the command
    line that was typed and can offer it again with them (`run`, `stage`).
    """

    def __init__(
        self, code: str, what: str, *, where: str = "", why: str = "", hint: str = "", exit_code: int = EXIT_INVALID
    ) -> None:
        super().__init__(what)
        self.code, self.what, self.where, self.why, self.hint, self.exit_code = code, what, where, why, hint, exit_code
        self.meant: dict[str, str] = {}

    def to_dict(self) -> dict[str, Any]:
        """Give the error as `--json` prints it, empty parts left out."""
        parts = {"code": self.code, "message": self.what, "where": self.where, "why": self.why, "hint": self.hint}
        return {key: value for key, value in parts.items() if value}

    def __str__(self) -> str:
        text = f"{self.code}: {self.what}"
        if self.where:
            text += f"\n  where: {self.where}"
        if self.why:
            text += f"\n  why: {self.why}"
        if self.hint:
            text += f"\n  hint: {self.hint}"
        return text


def quoted(path: str) -> str:
    """Quote a path for a hint, where a shell would take more out of it than its letters."""
    plain = all(character.isalnum() or character in "/._-+:@%," for character in path) and path[:1] not in ("", "-")
    return path if plain else "'" + path.replace("'", "'\\''") + "'"
