"""How a run here stands to the same run at a remote: what both last agreed on, and which of them moved since (D9, D53).

A remote has a run as the ref `refs/loom/runs/{run_id}`: a commit of what is carried, its parent the one before. What
this repository last pushed or pulled is `refs/loom/remotes/{remote}/{run_id}`, so a second push sends what is new
alone, and git's own tidying keeps the objects. No branch, no tag, no index, no working tree.

A repository is one thing and a run's store another: several stores may share a repository's refs, and a store may be
put back to what it was, by a backup or by another branch. So no ref says what a run here goes on from, its log does:
each push writes an entry of its own into that, and carries it. A log that holds such an entry goes on from that push.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from loomctl.handoff import carried, git_refs, git_remotes, received
from loomctl.handoff.carried import Entry, Looker
from loomctl.kit import files
from loomctl.kit.errors import EXIT_HELD, EXIT_USAGE, LoomError
from loomctl.kit.ids import checked_id
from loomctl.kit.lock import PATIENCE, Lock
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import log_verdict
from loomctl.runs.machine import agreed
from loomctl.runs.store import events

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from loomctl.handoff.carried import Look
    from loomctl.handoff.received import Told
    from loomctl.runs.caller import Workspace

SAME, MINE, THEIRS, DIVERGED = "same", "mine", "theirs", "diverged"
"""Which side has what the other has not: neither, this machine, the remote, both."""

LOG = carried.RUN + events.FILE
_MOST_COMMITS = 10_000  # of a remote's run that are looked through
_LOST = ("BAD_HANDOFF", "RUN_ID_MISMATCH")
_UNFIT = ("BAD_HANDOFF", "NEWER_HANDOFF", "RUN_ID_MISMATCH", "SCHEMA_TOO_NEW")


class Standing(NamedTuple):
    """How a run stands to a remote's. kind: which side is newer; base: the commit that the one here goes on from.

    theirs: the remote's commit; told: what it says of itself, where it was read; look: what is carried from here. Each
    None where there is none. apart: what is here is no part of what is newer there, and is lost if that replaces it.
    """

    kind: str
    base: str | None
    theirs: str | None
    told: Told | None
    look: Look | None
    apart: bool = False


class Desk:
    """One remote, as runs of one store are handed to it and taken from it."""

    def __init__(self, space: Workspace, named: str | None = None, *, asks: bool = False) -> None:
        """Find the repository and the remote. Raises NO_GIT, NO_REPOSITORY, NO_REMOTE."""
        self.space = space
        self.repository = git_refs.of_store(space.store.folder, asks=asks)
        self.remote = git_remotes.find(self.repository, named, space.caller.cwd)
        self.looker = Looker(self.repository.object_format)
        self._told: dict[str, Told] = {}
        self._trees: dict[str, dict[str, str]] = {}

    def option(self) -> str:
        """Give what a command line needs to name this remote again; empty for `origin`."""
        return self.remote.option

    @contextmanager
    def listing_hinted(self) -> Iterator[None]:
        """Have the errors of what came, which send to the list of a remote's runs, name this remote."""
        try:
            yield
        except LoomError as error:
            if error.code in ("BAD_HANDOFF", "RUN_ID_MISMATCH"):
                error.hint = self.remote.listing
            raise

    # ---- Names.

    def kept(self, run_id: str) -> str:
        """Name the ref of what was last pushed or pulled."""
        return f"refs/loom/remotes/{self.remote.key}/{_fit(run_id)}"

    def pending(self, run_id: str) -> str:
        """Name where the refs of commits stand that are on their way to the remote, or may be."""
        return f"refs/loom/pending/{self.remote.key}/{_fit(run_id)}/"

    def incoming(self, run_id: str) -> str:
        """Name the ref of what was fetched and is not taken yet."""
        return f"{self._incoming}{_fit(run_id)}"

    @property
    def _incoming(self) -> str:
        return f"refs/loom/incoming/{self.remote.key}/"

    def lock(self, run_id: str, *, patience: float = PATIENCE) -> Lock:
        """Give the lock of who hands a run on from here; the run's own is not held while a remote is waited for.

        patience: seconds.
        """
        path = os.path.join(self.space.store.local, "locks", f"handoff-{checked_id(run_id)}.lock")
        return Lock(path, patience=patience, what="the handoff of the run")

    # ---- What commits hold.

    def told(self, commit: str, run_id: str) -> Told:
        """Give what a commit that is here says of itself. Raises BAD_HANDOFF, NEWER_HANDOFF, RUN_ID_MISMATCH."""
        if commit not in self._told:
            where = received.where_of(self.remote, run_id)
            with self.listing_hinted():
                try:
                    text = self.repository.commit_text(commit, received.LONGEST_MESSAGE)
                except ValueError as error:
                    raise received.bad(where, str(error)) from None
                self._told[commit] = received.read_message(git_refs.message_of(text), run_id, where)
        return self._told[commit]

    def tree(self, commit: str, run_id: str) -> dict[str, str]:
        """Give the files of a commit that is here, objects by path. Raises BAD_HANDOFF."""
        if commit not in self._trees:
            with self.listing_hinted():
                found = received.tree(self.repository, commit, received.where_of(self.remote, run_id))
            self._trees[commit] = {path: oid for path, (oid, _) in found.items()}
        return self._trees[commit]

    def agree(self, run_id: str, commit: str, *, log: bytes | None = None) -> None:
        """Note that both sides have this commit; what was on its way is done with.

        log: the run's here, where that is not the commit's: a word settled that it counts for one that goes on from it.
        """
        done: dict[str, str | None] = dict.fromkeys(self.repository.refs(self.pending(run_id)))
        self.repository.set_refs({self.kept(run_id): commit, self.incoming(run_id): None, **done})
        note(self, run_id, commit, log)

    def let_go(self, run_id: str, commit: str) -> None:
        """Let go of a commit that was on its way and is known not to have arrived."""
        self.repository.set_refs(
            {name: None for name, oid in self.repository.refs(self.pending(run_id)).items() if oid == commit}
        )

    # ---- How both stand.

    def look(self, run_id: str, *, outputs: bool) -> Look:
        """Tell what is carried of a run from here, blobs apart. Raises NOT_LOOMS for a run of FABER's."""
        home = self.space.store.home(run_id)
        if home.faber:
            raise not_looms(run_id, home.state)
        return self.looker.look(home.folder, outputs=outputs)

    def is_as_in(self, look: Look, commit: str, run_id: str) -> bool:
        """Tell whether what is carried from here is what a commit holds.

        Blobs apart, which only ever come to it, and outputs that are not here: nobody's work is in them.
        """
        mine, there = of_run(look.names()), self.tree(commit, run_id)
        return {**{path: there[path] for path in of_run(there) if is_output(path)}, **mine} == of_run(there)

    def standing(self, run_id: str, theirs: str | None, *, notes: bool = False) -> Standing:
        """Tell how a run stands to the remote's, which is fetched where that is needed.

        theirs: the remote's commit as it was just listed; notes: what the logs alone told is noted, by who holds
        `lock`. Raises as fetching does, and BAD_HANDOFF.
        """
        with self.taking(run_id, theirs):
            if theirs is not None:
                self.get(run_id, theirs)
            return self._standing(run_id, theirs, is_read=True, notes=notes)

    def standing_as_known(self, run_id: str, theirs: str | None) -> Standing:
        """Tell how a run stands to the remote's by what is here; nothing is fetched, and nothing written.

        A moved one that is not here counts as one that goes on from what was agreed on. Raises BAD_HANDOFF.
        """
        return self._standing(run_id, theirs, is_read=theirs in self.held(), notes=False)

    def _standing(self, run_id: str, theirs: str | None, *, is_read: bool, notes: bool) -> Standing:
        told = self.told(theirs, run_id) if theirs is not None and is_read else None
        if theirs is not None and not self.space.store.has(run_id):
            return Standing(THEIRS, None, theirs, told, None)
        look = self.look(run_id, outputs=False)
        base = base_of(self, run_id, theirs if is_read else None, look)
        if self.with_outputs(run_id, base):
            look = self.look(run_id, outputs=True)
        if theirs is None:
            return Standing(MINE, base, None, None, look)
        is_mine_new = base is None or not self.is_as_in(look, base, run_id)
        if base == theirs:
            if notes and not self.is_noted(run_id, theirs):
                self._noted(run_id, theirs, log_of(look))
            return Standing(MINE if is_mine_new else SAME, base, theirs, told, look)
        if not is_read:
            return Standing(DIVERGED if is_mine_new else THEIRS, base, theirs, None, look)
        if is_mine_new and self._is_what_they_have(run_id, theirs, told):
            if notes:
                self._noted(run_id, theirs)
            return Standing(SAME, theirs, theirs, told, look)
        return self._behind(run_id, Standing(THEIRS, base, theirs, told, look), is_mine_new=is_mine_new)

    def _behind(self, run_id: str, found: Standing, *, is_mine_new: bool) -> Standing:
        """Tell of a run that is not as theirs whether theirs goes on from it, and whether all of it is a part of that.

        What was done here and is told in no log is somebody's work as well.
        """
        look, base, theirs = found.look, found.base, found.theirs
        assert look is not None  # there is a run on both sides
        assert theirs is not None
        behind = goes_on(self, look, theirs, run_id)
        if not is_mine_new:
            return found._replace(apart=not behind)
        if not behind:
            return found._replace(kind=DIVERGED, apart=True)
        if is_part(self, look, base, theirs, run_id):
            return found
        return found._replace(kind=THEIRS if has_news(self, look, base, run_id) else DIVERGED, apart=True)

    def is_noted(self, run_id: str, theirs: str) -> bool:
        """Tell whether it stands here that both sides have a commit, and that nothing is on its way.

        It does not where the log alone knows it: of a push that nobody heard of, or by another name of the remote.
        """
        held = self.repository.refs("refs/loom/")
        return held.get(self.kept(run_id)) == theirs and not any(name.startswith(self.pending(run_id)) for name in held)

    def _noted(self, run_id: str, theirs: str, log: bytes | None = None) -> None:
        with suppress(OSError, LoomError):  # the logs tell it the next time, too
            self.agree(run_id, theirs, log=log)

    def _is_what_they_have(self, run_id: str, theirs: str, told: Told | None) -> bool:
        look = self.look(run_id, outputs=told is not None and told.outputs)
        return self.is_as_in(look, theirs, run_id)

    def with_outputs(self, run_id: str, base: str | None) -> bool:
        """Tell whether the outputs of tools are carried: once they were, they always are."""
        return base is not None and self.told(base, run_id).outputs

    def held(self) -> frozenset[str]:
        """Give the commits that are here and kept, under whatever name of a remote."""
        return frozenset(self.repository.refs("refs/loom/").values())

    # ---- What the remote has.

    def listed(self) -> dict[str, str]:
        """Give the remote's runs with their commits; what was fetched of a run that it no longer has is let go.

        Raises REMOTE_UNREACHABLE and REMOTE_DENIED.
        """
        there = self.repository.listed(self.remote)
        below = self._incoming
        held = self.repository.refs(below)
        self.repository.set_refs({name: None for name in held if name.removeprefix(below) not in there})
        return there

    @contextmanager
    def taking(self, run_id: str, theirs: str | None) -> Iterator[None]:
        """Let go what was fetched of a run if it turns out to be nothing that can be taken: no ref holds on to it.

        theirs: the remote's commit.
        """
        try:
            yield
        except LoomError as error:
            if error.code in _UNFIT:
                self.repository.set_refs({self.incoming(run_id): None})
            if theirs is not None and error.code in _LOST and received.KEPT not in error.why:
                received.way_past(error, self.remote, run_id, theirs, is_here=self.space.store.has(run_id))
            raise

    def get(self, run_id: str, commit: str) -> None:
        """Have a remote's commit here. Raises as fetching does, and MOVED_MEANWHILE where it is no longer that one."""
        if commit in self.held():
            return
        self.repository.fetch(self.remote, {run_id: self.incoming(run_id)})
        if self.repository.commit_of(self.incoming(run_id)) != commit:
            raise LoomError(
                "MOVED_MEANWHILE",
                f"the remote's run {run_id} was pushed once more at this moment",
                where=received.where_of(self.remote, run_id),
                why="nothing was changed here; the same command again takes the newest",
                hint=f"loomctl pull {run_id}{self.option()}",
            )


def of_run(names: Mapping[str, str]) -> dict[str, str]:
    """Give the run's own files among those of a tree."""
    return {path: oid for path, oid in names.items() if path.startswith(carried.RUN)}


def is_output(path: str) -> bool:
    """Tell an output of a tool among what is carried."""
    return path.startswith(carried.OUTPUTS)


def gone(known: Mapping[str, str], look: Look) -> list[str]:
    """Give the files of a commit that the run has no more; an output that is only not here stays in what is pushed."""
    return sorted(path for path in of_run(known) if path not in look.files and not is_output(path))


def who(told: Told | None) -> str:
    """Say who pushed a commit, when, and at which step, on one line."""
    if told is None:
        return "somebody pushed it"
    by, machine = masked_line(told.by, 60), masked_line(told.machine, 60)
    words = [masked_line(told.summary.get(key) or "", limit) for key, limit in (("status", 40), ("step", 80))]
    stands = " at ".join(word for word in words if word)
    return f"{by} on {machine} pushed it at {masked_line(told.at, 30)}{f', {stands}' if stands else ''}"


def diverged(desk: Desk, run_id: str, found: Standing, so: str) -> LoomError:
    """Make the error of a run that went on here and there."""
    pull = f"loomctl pull {run_id}{desk.option()}"
    return LoomError(
        "DIVERGED",
        f"the run {run_id} went on here and at {desk.remote.shown}; {so}",
        where=received.where_of(desk.remote, run_id),
        why=f"{who(found.told)}; two states are not merged: --keep-mine keeps this one and saves theirs as a "
        "run of its own, --take-theirs takes theirs and saves this one",
        hint=f"{pull} --keep-mine",
        exit_code=EXIT_HELD,
    )


def warned(space: Workspace, run_id: str) -> list[str]:
    """Say, before and after a run is handed on, that its log is damaged; empty where it is not."""
    found = log_verdict.warning(space.store, run_id)
    return [f"Run {run_id}: {found}"] if found else []


def not_looms(run_id: str, where: str) -> LoomError:
    """Make the error of a run of FABER's."""
    return LoomError(
        "NOT_LOOMS",
        f"the run {run_id} is FABER's; Loom does not hand it on",
        where=where,
        why="its files stand in FABER's folders, in FABER's own form, and FABER would know nothing of what came; "
        "move the project's .fractary folder with your branch",
        hint=f"loomctl show {run_id}",
        exit_code=EXIT_USAGE,
    )


def _fit(run_id: str) -> str:
    """Give a run's id if a ref can bear it. Raises BAD_ID."""
    if not git_refs.fits_a_ref(checked_id(run_id)):
        raise LoomError(
            "BAD_ID",
            f"git has no ref for a run of the name {run_id!r:.80}",
            why="a ref ends neither with '.lock' nor with '.'",
            hint=f"loomctl runs archive {run_id}",
            exit_code=EXIT_USAGE,
        )
    return run_id


def log_of(look: Look) -> bytes:
    """Give a run's log as it was looked at; empty where none is carried."""
    entry = look.files.get(LOG)
    return files.read_bytes(entry.source, limit=carried.LARGEST_FILE)[: entry.bytes] if entry is not None else b""


def base_of(desk: Desk, run_id: str, theirs: str | None, look: Look) -> str | None:
    """Give the commit that a run here goes on from: the newest in what a remote has.

    One that was settled here by a word (`--keep-mine`) counts, as long as the log is the one from then or goes on from
    that. theirs: the remote's commit, if it is here; else what was last agreed on with it counts alone. None: there is
    none, or nobody knows.
    """
    fitting = _fitting(desk, run_id, look)
    own = fitting.get(desk.remote.key)
    if theirs is None:
        return own if own is not None and desk.repository.commit_of(own) else None
    if own == theirs:
        return own
    return _newest(desk, theirs, log_of(look), set(fitting.values()))


def _fitting(desk: Desk, run_id: str, look: Look) -> dict[str, str]:
    """Give the commits that were agreed on, by remote, as far as the log here is or goes on from the one from then."""
    held = agreed.read(desk.space.store.local, run_id)
    lines = agreed.lines_of(log_of(look)) if held else frozenset()
    return {key: one.commit for key, one in held.items() if one.line in lines}


def _newest(desk: Desk, theirs: str, log: bytes, settled: set[str]) -> str | None:
    """Give the newest commit that was settled, or whose log the one here begins with.

    Of several with one log it is the first, and none whose log is no longer than that of a settled one before it: only
    such are pushes of Loom's, which write an entry each time.
    """
    algorithm = desk.repository.object_format
    every = list(desk.repository.history(theirs, LOG, most=_MOST_COMMITS))
    by_word = next((at for at, one in enumerate(every) if one[0] in settled), len(every))
    by_log = next((at for at, one in enumerate(every[:by_word]) if _begins(log, *one[1:], algorithm)), by_word)
    while by_log + 1 < by_word and every[by_log + 1][1] == every[by_log][1]:
        by_log += 1
    if by_log < by_word < len(every) and every[by_log][2] <= every[by_word][2]:
        by_log = by_word
    return every[by_log][0] if by_log < len(every) else None


def _begins(log: bytes, oid: str, size: int, algorithm: str) -> bool:
    """Tell whether a log begins with the whole lines of another, of which size and git's name are known."""
    whole = 0 < size <= len(log) and log[size - 1 : size] == b"\n"
    return whole and carried.oid_of(log[:size], algorithm) == oid


def goes_on(desk: Desk, look: Look, commit: str, run_id: str) -> bool:
    """Tell whether a commit's log begins with the one that is here, byte for byte.

    A commit that merely follows ours does not show it: who kept another state put that behind ours.
    """
    entry, there = look.files.get(LOG), desk.tree(commit, run_id).get(LOG)
    return entry is not None and there is not None and entry.bytes > 0 and _is_beginning(desk, LOG, entry, there)


def is_part(desk: Desk, look: Look, base: str | None, theirs: str, run_id: str) -> bool:
    """Tell of a run whose log theirs goes on from that each of its files is a part of theirs, too, or was before.

    Before: as it is in base, or in what was agreed on with another remote.
    Not everything that is done to a run is told in its log: tool steps are not, nor what a person puts beside it. The
    state is what the log tells; outputs stay here, whatever comes.
    """
    there = desk.tree(theirs, run_id)
    known = {base, *_fitting(desk, run_id, look).values()}
    before = [desk.tree(one, run_id) for one in known if one is not None and desk.repository.commit_of(one)]
    for path, entry in look.files.items():
        if not path.startswith(carried.RUN) or path == carried.STATE or path.startswith(carried.OUTPUTS):
            continue
        if entry.oid in (one.get(path) for one in (there, *before)):
            continue
        if not (path.endswith(".jsonl") and path in there and _is_beginning(desk, path, entry, there[path])):
            return False
    return True


def has_news(desk: Desk, look: Look, base: str | None, run_id: str) -> bool:
    """Tell whether a run's log here has entries that its base has not."""
    return base is None or look.names().get(LOG) != desk.tree(base, run_id).get(LOG)


def _is_beginning(desk: Desk, path: str, entry: Entry, there: str) -> bool:
    """Tell whether a file begins with what is carried of the one that is here."""
    if entry.oid == there:
        return True
    mine, _ = carried.form(path, files.read_bytes(entry.source, limit=carried.LARGEST_FILE))
    if mine is None:
        return False
    mine = mine[: entry.bytes]
    with desk.repository.contents([there]) as contents:
        _, size, stream = next(contents)
        return size > len(mine) and stream.read(len(mine)) == mine


def note(desk: Desk, run_id: str, commit: str, log: bytes | None = None) -> None:
    """Note that both sides have a commit. log: the run's here, where that is not the commit's: it was settled so."""
    store, key = desk.space.store, desk.remote.key
    if log is not None:
        agreed.write(store.local, run_id, key, agreed.Agreed(commit, agreed.last_line(log)))
        return
    told = agreed.Agreed(commit, agreed.last_line(_log_in(desk, run_id, commit)))
    with suppress(OSError):  # the logs tell it, too
        agreed.write(store.local, run_id, key, told)


def _log_in(desk: Desk, run_id: str, commit: str) -> bytes:
    oid = desk.tree(commit, run_id).get(LOG)
    if oid is None:
        return b""
    with desk.repository.contents([oid]) as contents:
        _, size, stream = next(contents)
        return stream.read(size)
