"""References to blobs, `blob://sha256/` and 64 lower-case hexadecimal digits: how they look, where they stand (D38)."""

from __future__ import annotations

from loomctl.kit.errors import EXIT_USAGE, LoomError

PREFIX = "blob://sha256/"
_DIGITS = frozenset("0123456789abcdef")


def is_ref(value: object) -> bool:
    """Tell whether a value is a reference to a blob, and nothing else besides."""
    return isinstance(value, str) and value.startswith(PREFIX) and is_sha256(value[len(PREFIX) :])


def is_sha256(text: str) -> bool:
    """Tell whether a text is the name that a SHA-256 has here."""
    return len(text) == 64 and _DIGITS.issuperset(text)


def ref_to(sha256: str) -> str:
    """Give the reference to the content of a SHA-256, as 64 lower-case hexadecimal digits."""
    return PREFIX + sha256


def sha256_of(ref: str) -> str:
    """Give the SHA-256 that a reference names. Raises BAD_REF."""
    if not is_ref(ref):
        raise LoomError(
            "BAD_REF",
            f"{ref!r:.120} is no reference to a blob",
            why=f"one is {PREFIX} and 64 lower-case hexadecimal digits",
            hint="loomctl blob get --help",
            exit_code=EXIT_USAGE,
        )
    return ref[len(PREFIX) :]


def refs_of(context: object) -> list[str]:
    """List the references that a context holds as the values of its keys, each once; what is no object holds none.

    Within a larger value one is text, whoever wrote it: Loom puts none there.
    """
    return sorted({one for one in context.values() if is_ref(one)}) if isinstance(context, dict) else []


def refs_of_state(state: object) -> list[str]:
    """List those that a state holds where Loom writes them: in its context, and in what open branches changed (D43)."""
    if not isinstance(state, dict):
        return []
    visits = state.get("steps")
    fans = [one.get("branches") for one in visits if isinstance(one, dict)] if isinstance(visits, list) else []
    held = [_changed(records) for records in fans]
    return sorted({*refs_of(state.get("context")), *(ref for one in held for ref in one)})


def _changed(records: object) -> list[str]:
    """List those among what branches set, as a visit or a `status.json` holds them."""
    found = [one for one in records if isinstance(one, dict)] if isinstance(records, list) else []
    return [ref for one in found for ref in refs_of(one.get("set"))]


def refs_of_status(status: object) -> list[str]:
    """List those that a stage's `status.json` holds where Loom writes them: what its step set, replaced and printed."""
    if not isinstance(status, dict):
        return []
    before, command = status.get("context_before"), status.get("command")
    held = [status.get("context_updates"), before.get("set") if isinstance(before, dict) else None]
    alone = [status.get("output"), command.get("output") if isinstance(command, dict) else None]
    found = {*(ref for one in held for ref in refs_of(one)), *_changed(status.get("branches"))}
    return sorted({*found, *(str(one) for one in alone if is_ref(one))})
