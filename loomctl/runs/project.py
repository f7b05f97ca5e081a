"""Which project this is: its root, its store, the bundle that serves it (D3)."""

from __future__ import annotations

import os

from loomctl.kit import files, git, machine, package
from loomctl.kit.errors import LoomError, quoted
from loomctl.kit.records import NamedTuple
from loomctl.runs.store import blobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any

    from loomctl.runs.config import Settings
    from loomctl.runs.machine.local import Local
    from loomctl.runs.store.store import Store

STORE = ".loom"
FABER = ".fractary"  # where FABER keeps its own: a project, too (D5)


class Project(NamedTuple):
    """root: `{project_root}`; store: the `.loom` folder of its runs; plugin_root: the bundle. All absolute."""

    root: str
    store: str
    plugin_root: str

    @property
    def faber_roots(self) -> tuple[str, ...]:
        """The folders in which FABER's own may stand: the project's root, and the main checkout's."""
        return tuple(dict.fromkeys((self.root, os.path.dirname(self.store))))

    @property
    def name(self) -> str:
        """The project's name: that of the folder which holds the store, the same in every linked worktree."""
        return os.path.basename(os.path.dirname(self.store)) or "project"


def package_parent() -> str:
    """Give the folder that holds the package `loomctl`."""
    return os.path.dirname(package.FOLDER)


def plugin_root() -> str:
    """Give the bundle: beside the package in a checkout or plugin, `loomctl/_bundle` in a wheel."""
    beside = package_parent()
    inside = os.path.join(beside, "loomctl", "_bundle")
    return inside if os.path.isfile(os.path.join(inside, "plugin.json")) else beside


def find(starts: Iterable[str]) -> Project | None:
    """Find the nearest store or folder of FABER's upward from each start in turn, to the repository's top (D3, D5).

    Without a repository: the nearest parent that has one. A linked worktree uses the main checkout's store, with the
    worktree as its root.
    """
    for start in starts:
        if start and os.path.isdir(start):
            found = _upward(os.path.realpath(start))
            if found is not None:
                return found
    return None


def _upward(start: str) -> Project | None:
    top, main = _checkout(start)
    folder = start
    while True:
        owner = folder if main is None or top is None else os.path.join(main, os.path.relpath(folder, top))
        store = os.path.normpath(os.path.join(owner, STORE))
        is_loom = _is_store(store)
        if is_loom or _is_faber(folder) or _is_faber(owner):
            return Project(folder, store, plugin_root())
        if folder in (top, os.path.dirname(folder)):
            return None
        folder = os.path.dirname(folder)


def _is_store(folder: str) -> bool:
    """Tell a store: no link, which could open another project's, and no folder of copies for a step (D42)."""
    return os.path.isdir(folder) and not os.path.islink(folder) and not blobs.are_copies(folder)


def _is_faber(folder: str) -> bool:
    """Tell whether FABER is at home in a folder; what it keeps in the user's own home is no project."""
    return os.path.isdir(os.path.join(folder, FABER)) and folder != os.path.realpath(machine.home() or os.sep)


def new(start: str) -> Project:
    """Say where a first run's store goes: the repository's top (the main checkout's for a worktree), else `start`.

    Raises UNSAFE_LINK where a link stands in its place, NOT_A_FOLDER where a file does.
    """
    start = os.path.realpath(start)
    top, main = _checkout(start)
    root = top or start
    store = os.path.join(main or root, STORE)
    files.refuse_links(main or root, store)
    if os.path.lexists(store) and not os.path.isdir(store):
        why = "Loom needs a folder of that name; move the file out of the way"
        hint = f"mv {quoted(store)} {quoted(store + '.aside')}"
        raise LoomError("NOT_A_FOLDER", "a file stands where Loom keeps its folder", where=store, why=why, hint=hint)
    return Project(root, store, plugin_root())


def _checkout(start: str) -> tuple[str | None, str | None]:
    """Give `(top of the checkout, top of the main checkout)`, the second only for a linked worktree."""
    top = git.top_of(start)
    folders = git.git_folders(top) if top is not None else None
    if top is None or folders is None or folders[0] == folders[1] or os.path.basename(folders[1]) != ".git":
        return top, None
    main = os.path.realpath(os.path.dirname(folders[1]))
    known = os.path.isdir(main) and main != top and git.is_worktree_of(top, *folders)
    return top, main if known else None


# ---- Who asks, and from where.


class Sent(NamedTuple):
    """What a host wrote down of a conversation that stands before the assistant.

    slips: those of the ids that were asked for. copies: texts of whole files, by real path, whoever brought them.
    given_again: of what the host itself gave as it compacted the conversation, the same.
    """

    slips: frozenset[str]
    copies: Mapping[str, Sequence[str]]
    given_again: Mapping[str, str]


class Conversation:
    """What can be seen of the asking session's conversation; this one sees nothing, a host's own class sees more.

    keeps_starts: whether what a start gave stays, where nothing shows it, until the next start. of_host: gives another
    host's conversation, by the host's name and the transcript's path.
    """

    keeps_starts = False
    of_host: Callable[[str, str | None], Conversation] | None = None

    def holds(self, slips: Collection[str]) -> frozenset[str]:  # noqa: ARG002 - the shape of a host's own
        """Tell which slip ids stand live in the conversation; what cannot be seen is sent again (D15)."""
        return frozenset()

    def sent(
        self,
        wanted: Collection[str],  # noqa: ARG002 - as above
        older: Collection[str],  # noqa: ARG002
        *,
        patience: float = 0,  # noqa: ARG002
    ) -> Sent | None:
        """Tell which slips stand in the conversation, and which whole files; None where nothing can be seen.

        patience: seconds for which those that are wanted are waited for, where a host may not have written them yet.
        """
        return None

    def said_since(self, at: str) -> str | None:  # noqa: ARG002 - as above
        """Give what the assistant said since a time (UTC, with or without milliseconds); None if that is not known."""
        return None

    def usage_since(self, at: str, beside: Sequence[Conversation] = ()) -> dict[str, Any] | None:  # noqa: ARG002
        """Give the models and tokens that were used since a time, here and beside; None if that is not known (D41)."""
        return None

    def called(self) -> Mapping[str, float]:
        """Give when hooks were last called, by event, in seconds since 1970, as far as what was said shows it."""
        return {}

    def kept_at(self, session_id: str) -> str | None:  # noqa: ARG002 - as above
        """Find where the host keeps another session's transcript, by its id; None if that is not known."""
        return None

    def interrupted_at(self) -> float:
        """Give when its user last broke a turn off, in seconds since 1970; 0 where that is not known."""
        return 0

    def called_at(self) -> float:
        """Give when its assistant last called a tool, in seconds since 1970; 0 where that is not known."""
        return 0

    def boundary(self) -> str | None:
        """Name the last compaction; None where there was none, or that is not known."""
        return None

    def starts(self) -> None:
        """Be told that a session's start is answered now, which the host may write down later."""

    def is_planning(self) -> bool:
        """Tell whether its assistant plans and does nothing yet, where the host's event does not say it."""
        return False

    def is_busy(self) -> bool:
        """Tell whether subagents work on beside it, where the host's event does not say it."""
        return False

    def compacting(self) -> bool:
        """Tell whether a compaction works beside the turn, and takes what came before it once it is over."""
        return False

    def calls_beside(self, command: str) -> bool:  # noqa: ARG002 - as above
        """Tell whether the assistant makes other calls at once with a command, whose hooks came before its own."""
        return False

    def await_turn(self, prompt_id: str, ending: str) -> None:
        """Wait a little until the host has written down the turn that ends: it may write later than it calls a hook.

        prompt_id: the turn's, "" where it is not told; ending: the end of the assistant's message.
        """

    def last_turn(self) -> tuple[str, str]:
        """Give the key of the turn that ends and its last message, where the host's own Stop says neither."""
        return "", ""

    def summary(self) -> str | None:
        """Give the summary that the last compaction left; None where the host's own event tells it, or nothing does."""
        return None

    def last_message(self, ending: str) -> str:
        """Give the whole last message of the assistant, of which a host may have told the end alone."""
        return ending

    def began_with_loom(self, prompt_id: str, driven: Collection[str], unwritten: str = "") -> bool:  # noqa: ARG002
        """Tell whether a turn began with a command of Loom's, or with what followed from a driven turn.

        driven: the prompt ids of turns that are known to be driven; unwritten: the turn's prompt, where a host may not
        have written it down yet.
        """
        return False

    def is_notice(self, prompt: str) -> bool:  # noqa: ARG002 - as above
        """Tell a prompt that is the host's own notice of a subagent's end."""
        return False

    def refused(self) -> Sequence[str]:
        """Name the calls of the turn that ends which the host refused by its own permissions, as far as it says so."""
        return ()

    def another(self, path: str | None, host: str = "") -> Conversation:  # noqa: ARG002 - as above
        """Give another session's conversation, by its transcript's path. host: its own, empty for the same."""
        return self


class Caller(NamedTuple):
    """session_id: the host's (D24), None where nobody has one; pid: the host's process; cwd: absolute.

    environment_python: the made environment's interpreter, if there is one. on_hook_path: the standard library alone.
    parts: how many outputs a host takes of what is told now (D62); beside: UTF-16 units that it takes with a tool's
    result; printed: UTF-8 bytes of a command's output that reach its assistant. shut_in: whether the user's own
    folders are out of reach. shared: whether its process may hold sessions of other people. memory: the files of
    users' in a project that can lead an assistant, of whichever host, to what Loom keeps, each with the line that does;
    rereads: those of them that this session's host reads again at each start, clear and compaction; started_in: the
    folder that the host says it was started in, or empty.
    """

    session_id: str | None
    host: str
    pid: int | None
    cwd: str
    conversation: Conversation
    on_hook_path: bool = False
    environment_python: str | None = None
    parts: int = 1
    beside: int = 0
    printed: int = 24_000
    shut_in: bool = False
    shared: bool = False
    memory: Mapping[str, str] = {}
    rereads: tuple[str, ...] = ()
    started_in: str = ""


class Workspace(NamedTuple):
    """A project as one caller meets it.

    upcoming: says the one next thing to do in a run: `prompts.upcoming`, which stands above those who ask.
    """

    project: Project
    store: Store
    local: Local
    settings: Settings
    caller: Caller
    upcoming: Callable[..., str]
