"""What a setup consists of: files with their contents before and after, as pure functions; a module a host (D72)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit.errors import EXIT_USAGE, LoomError, quoted

if TYPE_CHECKING:
    from collections.abc import Callable


class Places(NamedTuple):
    """Where things are. folder: of the host's settings; launcher: what hooks call; bundle: the plugin's folder."""

    folder: str
    launcher: str
    bundle: str


class Part(NamedTuple):
    """One file of the user's. path: absolute; what: in words, what it is for; shown: what of it is new, to be shown.

    put: the content before (None for no file) to the content with Loom's part; take: the content without it, None for
    no file; put(put(x)) is put(x). Both raise LoomError where they cannot read what is there.
    """

    path: str
    what: str
    shown: str
    put: Callable[[bytes | None], bytes]
    take: Callable[[bytes], bytes | None]


class Plan(NamedTuple):
    """needs_link: whether the host's shell must find `loomctl` on PATH; then: what its user does besides, in order."""

    parts: tuple[Part, ...]
    needs_link: bool = True
    then: tuple[str, ...] = ()


def _has_mark(held: str) -> bool:
    return MARK in held


def own_file(path: str, what: str, content: bytes, is_ours: Callable[[str], bool] = _has_mark) -> Part:
    """Give a part that is a whole file of Loom's own. is_ours: tells an older one by its text."""

    def put(before: bytes | None) -> bytes:
        if before is not None and before != content and not is_ours(before.decode("utf-8", "replace")):
            raise LoomError(
                "FILE_EXISTS",
                "refusing to overwrite a file that Loom did not write",
                where=path,
                hint=f"ls -l {quoted(path)}",
                exit_code=EXIT_USAGE,
            )
        return content

    def take(before: bytes) -> bytes | None:
        return None if before == content or is_ours(before.decode("utf-8", "replace")) else before

    return Part(path, what, "a new file", put, take)


MARK = "Written by `loomctl plugin install"


def text_file(path: str, what: str, shown: str, put: Callable[[str], str], take: Callable[[str], str]) -> Part:
    """Give a part of a text file, whose functions take an empty text where there is none."""

    def putting(before: bytes | None) -> bytes:
        return put((before or b"").decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def taking(before: bytes) -> bytes | None:
        left = take(before.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        return None if left != before and left.strip() in (b"", b"{}") else left

    return Part(path, what, shown, putting, taking)


def json_file(
    path: str, what: str, shown: str, put: Callable[[dict[str, Any]], None], take: Callable[[dict[str, Any]], None]
) -> Part:
    """Give a part of a JSON file. put, take: change the object in place."""

    def putting(before: bytes | None) -> bytes:
        value = _object(path, before)
        known = json.dumps(value)
        put(value)
        return before if before is not None and json.dumps(value) == known else _rendered(value, before)

    def taking(before: bytes) -> bytes | None:
        value = _object(path, before)
        known = json.dumps(value)
        take(value)
        if json.dumps(value) == known:
            return before
        return _rendered(value, before) if value else None

    return Part(path, what, shown, putting, taking)


def _object(path: str, content: bytes | None) -> dict[str, Any]:
    if content is None or not content.strip():
        return {}
    try:
        value = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        what, why = "refusing to change a settings file that is not plain JSON", str(error)
        hint = f"python3 -m json.tool {quoted(path)}"
        raise LoomError("NOT_JSON", what, where=path, why=why, hint=hint, exit_code=EXIT_USAGE) from None
    if not isinstance(value, dict):
        what = "refusing to change a settings file that holds no JSON object"
        raise LoomError("NOT_JSON", what, where=path, hint=f"cat {quoted(path)}", exit_code=EXIT_USAGE)
    return value


def _rendered(value: dict[str, Any], before: bytes | None) -> bytes:
    """Render as the file was: with its indent and its end."""
    text = (before or b"").decode("utf-8-sig", "replace")
    second = text.partition("\n")[2]
    blanks = second[: len(second) - len(second.lstrip(" \t"))]
    end = "" if text.strip() and not text.endswith("\n") else "\n"
    indent: str | int = blanks if text.lstrip().startswith("{\n") and blanks.strip("\n") else 2
    return (json.dumps(value, ensure_ascii=False, indent=indent) + end).encode()


# ---- Hooks, in the shape that most hosts have taken over: {event: [{matcher?, hooks: [{command, …}]}]}.


def with_hooks(settings: dict[str, Any], host: str, entries: dict[str, Any]) -> None:
    """Put a host's hooks that call Loom behind those that are there, in place of older ones of Loom's."""
    if _own(settings, host) == entries:
        return
    without_hooks(settings, host)
    hooks = settings.setdefault("hooks", {})
    for event, groups in entries.items():
        hooks.setdefault(event, []).extend(groups)


def without_hooks(settings: dict[str, Any], host: str) -> None:
    """Take away the groups of hooks that call Loom, and what is empty without them."""
    hooks = settings.get("hooks")
    if not isinstance(hooks, dict):
        return
    for event in list(hooks):
        groups = hooks[event]
        if isinstance(groups, list):
            hooks[event] = [group for group in groups if not _is_looms(group, host)]
            if not hooks[event] and groups:
                del hooks[event]
    if not hooks:
        del settings["hooks"]


def _own(settings: dict[str, Any], host: str) -> dict[str, Any]:
    hooks = settings.get("hooks")
    found = {}
    for event, groups in hooks.items() if isinstance(hooks, dict) else ():
        own = [group for group in groups if _is_looms(group, host)] if isinstance(groups, list) else []
        found.update({event: own} if own else {})
    return found


def _is_looms(group: object, host: str) -> bool:
    entries = group.get("hooks") if isinstance(group, dict) else None
    commands = (
        [entry.get("command") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    )
    return bool(commands) and all(isinstance(one, str) and f" hook --host {host} " in one for one in commands)


def calling(hooks: dict[str, Any], root: str, launcher: str) -> dict[str, Any]:
    """Give a bundle's hooks with commands that call a launcher by its path. root: the variable of its folder.

    By that variable the launcher knows a plugin's hooks; one that was inherited would make these pass for such.
    """
    named = f"{root.strip('${}')}= {quoted(launcher)}"
    text = json.dumps(hooks).replace(json.dumps(f'"{root}/bin/loomctl"')[1:-1], json.dumps(named)[1:-1])
    found: dict[str, Any] = json.loads(text)
    return found
