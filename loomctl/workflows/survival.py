"""What a compaction must not lose: how it is declared, and whether it stands in a text. Pure.

An item is a text, a path into the run's state, or a critical artifact. A string is the artifact of that id where the
plan declares one, a path where it begins with `$.` or `$[`, else a text; `{artifact: …}`, `{path: …}` and `{text: …}`
say it outright. Every run has items besides (D66): its goal, its step and task, and what it has registered.
"""

from __future__ import annotations

from loomctl.kit.quick_json import as_object
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.fences import one_line, visible
from loomctl.kit.text.secrets import mask, masked
from loomctl.runs.model import visits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any

KEY = "must_survive"
TEXT, PATH, ARTIFACT = "text", "path", "artifact"
KINDS = (TEXT, PATH, ARTIFACT)
RUN = "run"
"""The kind of an item that nobody declared; its value is the text itself."""
LONGEST = 2000
"""Characters of a text or path; what is longer is an artifact's part."""
MOST = 100
"""Items that one declaration may have."""
_NAME_UNITS = 100
_MASKED, _LONGEST_MASK = "[masked: ", 60
_LEAST_AROUND = 16
"""Letters and digits around what is masked; a text with fewer is a secret, and is not looked for."""
_TRIES = 2000
"""Places of a text at which an item is looked for; what stands so often within words of others counts as not there."""
_PATHS = {"goal": "goal", "step": "current_step"}  # items of every run by the key of the state that has them
OWN = (*_PATHS, "task")
"""Names of what every run has."""
_ROOT = "{project_root}/"
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


class Item(NamedTuple):
    """One item. kind: text, path, artifact or run; value: the text, path or artifact's id; name: how it is called."""

    kind: str
    value: str
    name: str

    @property
    def sought(self) -> tuple[str, str]:
        """Give the kind and what is looked for: texts that differ in their white space alone are one item."""
        return self.kind, flatten(self.value) if self.kind == TEXT else self.value


def is_path(said: str) -> bool:
    """Tell whether a declared string is a path into the state: `$5 a month` is a text."""
    return said.startswith(("$.", "$["))


def outright(entry: object) -> tuple[str, str] | None:
    """Give an object's kind and value, such as `{text: …}`; None for what says no one thing."""
    said = [(kind, entry[kind]) for kind in KINDS if kind in entry] if isinstance(entry, dict) else []
    return said[0] if len(said) == 1 and isinstance(said[0][1], str) and said[0][1].strip() else None


def items(plan: Mapping[str, Any], state: Mapping[str, Any]) -> list[Item]:
    """Give what must survive in a run: what its plan declares, what was added to it, what every run has; each once.

    What does not have the form of an item is passed over: a hook goes on with the rest.
    """
    artifacts = {artifact["id"] for artifact in plan.get("artifacts", ())}
    found: dict[tuple[str, str], Item] = {}
    names: set[str] = set()
    for holder in (plan, state):
        listed = holder.get(KEY)
        for entry in listed[:MOST] if isinstance(listed, list) else ():
            item = _item(entry, artifacts)
            if item is not None and item.sought not in found:
                item = item._replace(name=_untaken(item.name, names))
                names.add(item.name)
                found[item.sought] = item
    for item in _of_every_run(plan, state):
        as_path, as_text = (PATH, f"$.{_PATHS.get(item.name, '')}"), (TEXT, flatten(item.value))
        if item.sought not in found and as_path not in found and as_text not in found:
            found[item.sought] = item._replace(name=_untaken(item.name, names))
            names.add(found[item.sought].name)
    return list(found.values())


def _of_every_run(plan: Mapping[str, Any], state: Mapping[str, Any]) -> Iterator[Item]:
    """Give goal, step, task and registered artifacts of a run, as far as it has them."""
    for name, key in _PATHS.items():
        value = state.get(key)
        if isinstance(value, str) and value.strip():
            yield Item(RUN, value, name)
    task = as_object(visits.task(state) if "steps" in state else None).get("text")
    if isinstance(task, str) and task.strip():
        yield Item(RUN, task, "task")
    registered = as_object(state.get("artifacts"))
    covered = {name: one["id"] for one in plan.get("artifacts", ()) for name in [_covers(one, registered)] if name}
    for name, path in list(registered.items())[:MOST]:
        if name in covered:
            yield Item(ARTIFACT, covered[name], covered[name])
        elif isinstance(path, str) and path.strip():
            yield Item(RUN, shown_path(path, state), name)


def uncovered(plan: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, str]:
    """Give the paths of registered artifacts that no critical artifact stands for, by name, as people write them."""
    return {item.name: item.value for item in _of_every_run(plan, state) if item.kind == RUN and item.name not in OWN}


def _covers(artifact: Mapping[str, Any], registered: Mapping[str, Any]) -> str:
    """Name the registered artifact that a critical one of the plan stands for; empty for none."""
    first, *rest = artifact.get("path_steps") or [""]
    if first == "artifacts" and len(rest) == 1 and rest[0] in registered:
        return str(rest[0])
    path = artifact.get("path")
    same = (name for name, one in registered.items() if isinstance(path, str) and _bare(path) == _bare(str(one)))
    return next(same, "")


def _bare(path: str) -> str:
    return path.removeprefix(_ROOT).removeprefix("./")


def shown_path(path: str, state: Mapping[str, Any]) -> str:
    """Give a registered path as people write it, from the project's root; of the run's folder its usual place."""
    return path.removeprefix(_ROOT).replace("{run_dir}/", f".loom/runs/{state.get('run_id')}/")


def _untaken(name: str, names: Collection[str]) -> str:
    """Give a name that no item before it has, for all else goes by the names: two secrets may be masked alike."""
    shown, count = name, 1
    while shown in names:
        count += 1
        shown = f"{name} #{count}"
    return shown


def _item(entry: object, artifacts: Collection[str]) -> Item | None:
    kind, value = (_kind(entry, artifacts), entry) if isinstance(entry, str) else outright(entry) or ("", "")
    if not value.strip() or len(value) > LONGEST:
        return None
    name = _name(value)
    return Item(kind, value, name if _kind(value, artifacts) == kind else f"{kind}:{name}")


def _kind(said: str, artifacts: Collection[str]) -> str:
    return ARTIFACT if said in artifacts else PATH if is_path(said) else TEXT


def _name(value: str) -> str:
    """Give an item's name: itself on one line, its secrets masked; a long one is cut, and told apart by a checksum.

    The checksum is of the masked text: one of a secret would tell a guess that is right from one that is not.
    """
    whole = one_line(mask(value)[0], LONGEST * 4)
    short = one_line(whole, _NAME_UNITS)
    if short == whole:
        return whole
    from binascii import crc32

    return f"{short} #{crc32(whole.encode('utf-8', 'surrogatepass')):08x}"


def text_of(value: Any) -> str | None:
    """Give the text that must be present for a text, or for what stands at a path; None where that is nothing.

    A value that is no text is its compact JSON; null, what is not there (MISSING) and what is blank is nothing.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        import json

        from loomctl.expressions.state_paths import MISSING

        if value is MISSING:
            return None
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return value if value.strip() else None


def mask_item(item: Item, text: str) -> str:
    """Give an item's text with its secrets masked; of a path whose last key names a secret the value is one."""
    key = ""
    if item.kind == PATH:
        from loomctl.expressions.state_paths import compile_path

        steps = compile_path(item.value)
        key = steps[-1] if steps and isinstance(steps[-1], str) else ""
    return str(masked({key: text}).popitem()[1]) if key else mask(text)[0]


def is_secret(shown: str) -> bool:
    """Tell whether a masked text is, but for a word or two, what was masked: nobody can look for it.

    shown: a text with its secrets masked, by Loom's output or as its run was handed on.
    """
    parts = _around(shown)
    return len(parts) > 1 and sum(sum(map(str.isalnum, part)) for part in parts) < _LEAST_AROUND


def _around(shown: str) -> list[str]:
    """Give what stands before, between and behind the masks of a text; one part where nothing is masked."""
    parts: list[str] = []
    begins, at = 0, shown.find(_MASKED)
    while at >= 0:
        end = shown.find("]", at, at + _LONGEST_MASK)
        if end >= 0:
            parts.append(shown[begins:at])
            begins = end + 1
        at = shown.find(_MASKED, max(end, at) + 1)
    return [*parts, shown[begins:]]


def flatten(text: str) -> str:
    """Give a text in the form in which texts are compared: each run of white space is one space, none at its ends."""
    return " ".join(visible(text).split())


def holds_masks(shown: str) -> bool:
    """Tell whether something in a text is masked, or looks so."""
    return len(_around(shown)) > 1


def search_forms(text: str) -> list[str]:
    """Give a text in the forms in which items are looked for in it (`stands_in`): as it is, and with secrets masked."""
    shown, count = mask(text)
    return [flatten(text), flatten(shown)] if count else [flatten(text)]


def stands_in(shown: str, texts: Sequence[str]) -> bool:
    """Tell whether a text stands in one of others: character by character, white space aside, and as whole words.

    shown: with its secrets masked; where one stood, a secret of the same kind stands in the others, or its mask, and of
    what is a secret nothing stands anywhere (`is_secret`). texts: as `looked_through` gives them. Where the text begins
    or ends with an ASCII letter, digit or underscore none such may stand beside it, so that `v1.2` is not taken for
    present where `v1.23` is.
    """
    wanted = flatten(shown)
    return bool(wanted) and not is_secret(shown) and any(_is_in(wanted, other) for other in texts)


def _is_in(wanted: str, text: str) -> bool:
    at, tries = text.find(wanted), 0
    while at >= 0 and tries < _TRIES:
        before, after = text[at - 1 : at] if at else "", text[at + len(wanted) : at + len(wanted) + 1]
        amid = wanted[0] in _WORD and before in _WORD
        if not amid and not (wanted[-1] in _WORD and after in _WORD):
            return True
        at, tries = text.find(wanted, _behind_word(text, at) if amid else at + 1), tries + 1
    return False


def _behind_word(text: str, at: int) -> int:
    """Give where a word may begin, behind the one that goes on at a place."""
    while at < len(text) and text[at] in _WORD:
        at += 1
    return at
