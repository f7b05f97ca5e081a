"""How a run here stands to the same run at a remote: what both last agreed on, and which of them moved since (D9, D53).

A remote has a run as the ref `refs/loom/runs/{run_id}`: a commit of what is carried, its parent the one before. What
this repository last pushed or pulled is `refs/loom/remotes/{remote}/{run_id}`, so a second push sends what is new
alone, and git's own tidying keeps the objects. No branch, no tag, no index, no working tree.

A repository is one thing and a run's store another: several stores may share a repository's refs, and a store may be
put back to what it was, by a backup or by another branch. So no ref says what a run here goes on from. The commit that
this store noted as agreed on does, as long as the run's log still has its last line of then; and so does the remote's
own, where the log here begins with the one there, for each push writes an entry of its own into that and carries it.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any, NamedTuple

from loomctl.handoff import carried, remotes, repository
from loomctl.handoff.carried import LOG, Look, Looker
from loomctl.handoff.remotes import Remote, bad_handoff
from loomctl.kit import clock, files, git
from loomctl.kit.errors import EXIT_HELD, EXIT_SKEW, EXIT_USAGE, UPDATE, LoomError
from loomctl.kit.ids import checked_id
from loomctl.kit.processes import PATIENCE, Lock
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secrets import mask, masked, masked_line
from loomctl.runs import log_verdict
from loomctl.runs.machine import run_notes
from loomctl.runs.project import Workspace
from loomctl.runs.store import blobs

SAME, MINE, THEIRS, DIVERGED = "same", "mine", "theirs", "diverged"
"""Which side has what the other has not: neither, this machine, the remote, both."""

# What a push writes, and the oldest that a pull reads. Schema 2 may bring files that who knows 1 alone takes for damage
# and tells how to remove from the remote; it reads this number first.
SCHEMA, OLDEST = 2, 1
MOST_FILES, LARGEST = 200_000, 8 << 30
# Of a tree: files and folders, and bytes of their list.
_MOST_ENTRIES, _LONGEST_LIST = 2 * MOST_FILES, 128 << 20
_LONGEST_MESSAGE = 1 << 20
_SUMMARY = {**dict.fromkeys(("work_id", "goal", "status", "step", "updated_at"), str), "revision": int, "stages": int}
_COPIES = "refs/loom/unreadable/"  # where a copy of what nobody can take is kept by who takes it away
_LOST = ("BAD_HANDOFF", "RUN_ID_MISMATCH")
_UNFIT = ("BAD_HANDOFF", "NEWER_HANDOFF", "RUN_ID_MISMATCH", "SCHEMA_TOO_NEW")


class Message(NamedTuple):
    """What a pushed commit says of itself. at: UTC; by, machine: who pushed, and where; outputs: whether they came.

    left_out: paths that were not carried, with the reasons; summary: `{work_id, goal, status, step, updated_at,
    revision, stages}`, of what was read those alone that are texts and numbers.
    """

    run_id: str
    at: str
    by: str
    machine: str
    outputs: bool
    left_out: tuple[tuple[str, str], ...]
    summary: dict[str, Any]

    def text(self) -> str:
        """Give the commit's message: a line for people, then the same as JSON. Secrets in it are masked, names too."""
        said = {"schema_version": SCHEMA, **masked(self._asdict()), "run_id": self.run_id}
        summary = said["summary"]
        head = one_line(f"Loom: {self.run_id}, {summary.get('status')} at {summary.get('step') or 'no step'}", 200)
        return f"{head}\n\n{json.dumps(said, ensure_ascii=False)}\n"

    def who(self) -> str:
        """Say who pushed it, when, and at which step, on one line."""
        by, machine = masked_line(self.by, 60), masked_line(self.machine, 60)
        words = [masked_line(self.summary.get(key) or "", limit) for key, limit in (("status", 40), ("step", 80))]
        stands = " at ".join(word for word in words if word)
        return f"{by} on {machine} pushed it {clock.ago(masked_line(self.at, 30))}{f', {stands}' if stands else ''}"


class Standing(NamedTuple):
    """How a run stands to a remote's. kind: which side is newer; base: the commit that the one here goes on from.

    theirs: the remote's commit; message: of that, where it was read; look: what goes from here. Each is None where
    there is none. apart: what is here is no part of what is newer there, and is lost if that replaces it.
    """

    kind: str
    base: str | None
    theirs: str | None
    message: Message | None
    look: Look | None
    apart: bool = False


class Desk:
    """One remote, as runs of one store are handed to it and taken from it."""

    def __init__(self, space: Workspace, named: str | None = None, *, asks: bool = False) -> None:
        """Find the repository and the remote. Raises NO_GIT, NO_REPOSITORY, NO_REMOTE."""
        self.space = space
        self.repository = repository.of_store(space.store.folder, asks=asks)
        self.remote = repository.find_remote(self.repository, named, space.caller.cwd)
        self.looker = Looker(self.repository.object_format)
        self._messages: dict[str, Message] = {}
        self._trees: dict[str, dict[str, str]] = {}
        self._author: tuple[str, str] | None = None

    # ---- Names.

    def last_ref(self, run_id: str) -> str:
        """Name the ref of what was last pushed or pulled."""
        return f"refs/loom/remotes/{self.remote.key}/{_fit(run_id)}"

    def pending_refs(self, run_id: str) -> str:
        """Name where the refs of commits stand that are on their way to the remote, or may be."""
        return f"refs/loom/pending/{self.remote.key}/{_fit(run_id)}/"

    def incoming_ref(self, run_id: str = "") -> str:
        """Name the ref of what was fetched and is not taken yet; without a run, what all those begin with."""
        return f"refs/loom/incoming/{self.remote.key}/{_fit(run_id) if run_id else ''}"

    def lock(self, run_id: str, *, patience: float = PATIENCE) -> Lock:
        """Give the lock of who hands a run on from here; the run's own is not held while a remote is waited for.

        patience: seconds.
        """
        path = os.path.join(self.space.store.local, "locks", f"handoff-{checked_id(run_id)}.lock")
        return Lock(path, patience=patience, what="the handoff of the run")

    def author(self) -> tuple[str, str]:
        """Give who hands on from here: the name for people, masked, and the identity that a commit takes."""
        if self._author is None:
            known = self.repository.committer()
            name = known[0] if known is not None else git.user_name(self.repository.top)
            self._author = mask(name)[0], f"{known[0]} <{known[1]}>" if known is not None else "Loom <loom@localhost>"
        return self._author

    # ---- What commits hold.

    def message(self, commit: str, run_id: str) -> Message:
        """Give what a commit that is here says of itself. Raises BAD_HANDOFF, NEWER_HANDOFF, RUN_ID_MISMATCH."""
        if commit not in self._messages:
            self._messages[commit] = read_message(
                commit_text(self.repository, commit, run_id, self.remote), run_id, self.remote
            )
        return self._messages[commit]

    def tree(self, commit: str, run_id: str) -> dict[str, str]:
        """Give the files of a commit that is here, objects by path. Raises BAD_HANDOFF."""
        if commit not in self._trees:
            try:
                self._trees[commit] = self._tree(commit)
            except ValueError as error:
                raise bad_handoff(self.remote, run_id, str(error)) from None
        return self._trees[commit]

    def _tree(self, commit: str) -> dict[str, str]:
        found: dict[str, str] = {}
        folders: set[str] = set()
        total = 0
        with closing(self.repository.tree(commit, most=_MOST_ENTRIES, longest=_LONGEST_LIST)) as entries:
            for mode, kind, oid, size, path in entries:
                trouble = _trouble(mode, kind, size, path)
                if trouble or path in found or path in folders:
                    raise ValueError(f"{one_line(path, 120)} {trouble or 'occurs twice'}")
                if kind == "tree":
                    folders.add(path)
                    continue
                found[path] = oid
                total += size
                if len(found) > MOST_FILES or total > LARGEST:
                    raise ValueError(f"it holds more than {MOST_FILES:,} files or {LARGEST:,} bytes")
        if carried.STATE not in found or carried.PLAN not in found:
            raise ValueError("it lacks state.json or plan.json")
        return found

    def log(self, commit: str, run_id: str) -> bytes:
        """Give the run's log in a commit; empty where it has none."""
        oid = self.tree(commit, run_id).get(LOG)
        return self.repository.content(oid) if oid is not None else b""

    def agree(self, run_id: str, commit: str, *, log: bytes | None = None) -> None:
        """Note that both sides have this commit; what was on its way is done with.

        log: the run's here, where that is not the commit's: a word settled that it counts for one that goes on from it.
        """
        done: dict[str, str | None] = dict.fromkeys(self.repository.refs(self.pending_refs(run_id)))
        self.repository.set_refs({self.last_ref(run_id): commit, self.incoming_ref(run_id): None, **done})
        line = run_notes.last_line(self.log(commit, run_id) if log is None else log)
        try:
            run_notes.note_agreed(self.space.store.local, run_id, self.remote.key, run_notes.Agreed(commit, line))
        except OSError:
            if log is not None:  # else the logs tell it, too
                raise

    def let_go(self, run_id: str, commit: str) -> None:
        """Let go of a commit that was on its way and is known not to have arrived."""
        held = self.repository.refs(self.pending_refs(run_id))
        self.repository.set_refs({name: None for name, oid in held.items() if oid == commit})

    # ---- How both stand.

    def look(self, run_id: str, *, outputs: bool) -> Look:
        """Tell what is carried of a run from here, blobs apart. Raises NOT_LOOMS for a run of FABER's."""
        home = self.space.store.home(run_id)
        if home.faber:
            called = self.space.store.handle(run_id)
            what, hint = f"the run {called} belongs to FABER, so Loom cannot hand it on", f"loomctl show {called}"
            why = "its files are in FABER's folders and format, and FABER would not know what arrived"
            why += "; commit the project's .fractary folder to your branch instead"
            raise LoomError("NOT_LOOMS", what, where=home.state, why=why, hint=hint, exit_code=EXIT_USAGE)
        return self.looker.look(home.folder, outputs=outputs)

    def standing(self, run_id: str, theirs: str | None, *, notes: bool = False) -> Standing:
        """Tell how a run stands to the remote's, which is fetched where that is needed.

        theirs: the remote's commit as it was just listed; notes: what the logs alone told is noted, by who holds
        `lock`. Raises as fetching does, and BAD_HANDOFF.
        """
        with self.drop_unfit(run_id, theirs):
            if theirs is not None:
                self.get(run_id, theirs)
            found = self._standing(run_id, theirs, is_read=True)
            if notes and theirs is not None and found.look is not None and found.base == theirs:
                with suppress(OSError, LoomError):  # the logs tell it the next time, too
                    if not self.is_noted(run_id, theirs):
                        self.agree(run_id, theirs, log=log_of(found.look))
            return found

    def standing_as_known(self, run_id: str, theirs: str) -> Standing:
        """Tell how a run stands to the remote's by what is here; nothing is fetched, and nothing written.

        A moved one that is not here counts as one that goes on from what was agreed on. Raises BAD_HANDOFF.
        """
        return self._standing(run_id, theirs, is_read=theirs in self.commits_here())

    def _standing(self, run_id: str, theirs: str | None, *, is_read: bool) -> Standing:
        message = self.message(theirs, run_id) if theirs is not None and is_read else None
        if theirs is not None and not self.space.store.has(run_id):
            return Standing(THEIRS, None, theirs, message, None)
        look = self.look(run_id, outputs=False)
        settled = self._settled(run_id, look)
        base = self._base(run_id, theirs if is_read else None, look, settled)
        if self.with_outputs(run_id, base):
            look = self.look(run_id, outputs=True)
        found = Standing(MINE, base, theirs, message, look)
        if theirs is None:
            return found
        is_new = base is None or not self._is_as_in(look, base, run_id)
        if base == theirs:
            return found if is_new else found._replace(kind=SAME)
        if not is_read:
            return found._replace(kind=DIVERGED if is_new else THEIRS)
        mine = log_of(look)
        # A commit that merely follows ours shows nothing: who kept another state put that behind ours.
        goes_on = bool(mine) and self.log(theirs, run_id).startswith(mine)
        if not is_new or not goes_on:
            return found._replace(kind=DIVERGED if is_new else THEIRS, apart=not goes_on)
        before = [base, *settled.values()]
        if self._is_part(look, run_id, theirs, before):
            return found._replace(kind=THEIRS)
        has_news = base is not None and look.names().get(LOG) != self.tree(base, run_id).get(LOG)
        return found._replace(kind=THEIRS if has_news else DIVERGED, apart=True)

    def _settled(self, run_id: str, look: Look) -> dict[str, str]:
        """Give the commits that were agreed on, by remote, as far as the log here has its last line from then."""
        held = run_notes.agreed(self.space.store.local, run_id)
        lines = run_notes.lines_of(log_of(look)) if held else frozenset()
        return {key: one.commit for key, one in held.items() if one.line in lines}

    def _base(self, run_id: str, theirs: str | None, look: Look, settled: Mapping[str, str]) -> str | None:
        """Give the commit that a run here goes on from. None: there is none, or nobody knows.

        theirs: the remote's commit, if it is here; else what was last agreed on with it counts alone.
        """
        own = settled.get(self.remote.key)
        if theirs is None:
            return own if own is not None and self.repository.commit_of(own) else None
        if own == theirs:
            return own
        candidates = [own, *reversed([commit for key, commit in settled.items() if key != self.remote.key])]
        base = next((one for one in candidates if one and self.repository.is_ancestor(one, theirs)), None)
        mine, there = log_of(look), self.log(theirs, run_id)
        before = self.log(base, run_id) if base is not None else b""
        # A log that is no longer than one that this goes on from was made by no push of Loom's: each writes an entry.
        is_older = mine.startswith(before) and len(there) <= len(before)
        return theirs if there.endswith(b"\n") and mine.startswith(there) and not is_older else base

    def _is_as_in(self, look: Look, commit: str, run_id: str) -> bool:
        """Tell whether what is carried from here is what a commit holds.

        Blobs apart, which only ever come to it, and outputs that are not here: nobody's work is in them.
        """
        mine, there = carried.of_run(look.names()), carried.of_run(self.tree(commit, run_id))
        return {**{path: there[path] for path in there if carried.is_output(path)}, **mine} == there

    def _is_part(self, look: Look, run_id: str, theirs: str, before: list[str | None]) -> bool:
        """Tell of a run whose log theirs goes on from that each of its files is a part of theirs, too, or was before.

        before: what this run went on from, with whatever remote. Not everything that is done to a run is told in its
        log: tool steps are not, nor what a person puts beside it. The state is what the log tells; outputs stay here.
        """
        there = self.tree(theirs, run_id)
        trees = [there, *(self.tree(one, run_id) for one in {*before} if one and self.repository.commit_of(one))]
        for path, entry in look.files.items():
            if path == carried.STATE or carried.is_output(path) or entry.oid in (tree.get(path) for tree in trees):
                continue
            mine = entry.content(path) if path.endswith(".jsonl") and path in there else None
            if mine is None or not self.repository.content(there[path]).startswith(mine):
                return False
        return True

    def is_noted(self, run_id: str, theirs: str) -> bool:
        """Tell whether it stands here that both sides have a commit, and that nothing is on its way.

        It does not where the log alone knows it: of a push that nobody heard of, or by another name of the remote.
        """
        held = self.repository.refs("refs/loom/")
        return held.get(self.last_ref(run_id)) == theirs and not any(
            name.startswith(self.pending_refs(run_id)) for name in held
        )

    def with_outputs(self, run_id: str, base: str | None) -> bool:
        """Tell whether the outputs of tools are carried: once they were, they always are."""
        return base is not None and self.message(base, run_id).outputs

    def commits_here(self) -> frozenset[str]:
        """Give the commits that are here and kept, under whatever name of a remote."""
        return frozenset(self.repository.refs("refs/loom/").values())

    # ---- What the remote has.

    def list_runs(self) -> dict[str, str]:
        """Give the remote's runs with their commits; what was fetched of a run that it no longer has is let go.

        Raises REMOTE_UNREACHABLE and REMOTE_DENIED.
        """
        there, below = self.repository.list_runs(self.remote), self.incoming_ref()
        held = self.repository.refs(below)
        self.repository.set_refs({name: None for name in held if name.removeprefix(below) not in there})
        return there

    @contextmanager
    def drop_unfit(self, run_id: str, theirs: str | None) -> Iterator[None]:
        """Let go what was fetched of a run if it turns out to be nothing that can be taken: no ref holds on to it.

        theirs: the remote's commit.
        """
        try:
            yield
        except LoomError as error:
            if error.code in _UNFIT:
                self.repository.set_refs({self.incoming_ref(run_id): None})
            if theirs is not None and error.code in _LOST and _COPIES not in error.why:
                self._say_way_past(error, run_id, theirs)
            raise

    def _say_way_past(self, error: LoomError, run_id: str, commit: str) -> None:
        """Say in an error what becomes of a run that nobody can take. commit: what the remote has.

        Nothing is taken away without a copy, nor what came there since: what it holds may be all that there is of
        somebody's work. So the copy has a name of its own, and the rest waits for it.
        """
        remote, ref = self.remote, remotes.RUNS + run_id
        keeps = f"git fetch {remote.read_at} {ref}:{_COPIES}{run_id}/{commit}"
        away = f"git push --force-with-lease={ref}:{commit} {remote.written_at} --delete {ref}"
        puts = f"`loomctl push {self.space.store.handle(run_id)}{remote.option}`"
        then = f"run `{keeps} && {away}` (which keeps a copy here and deletes it there), then {puts}"
        is_here = self.space.store.has(run_id)
        error.hint = keeps if is_here else remote.listing
        error.why += (
            f"; to replace it with the run that is here, {then}"
            if is_here
            else f"; whoever has the run can push it again: {then}"
        )

    def get(self, run_id: str, commit: str) -> None:
        """Have a remote's commit here. Raises as fetching does, and MOVED_MEANWHILE where it is no longer that one."""
        if commit in self.commits_here():
            return
        self.repository.fetch(self.remote, {run_id: self.incoming_ref(run_id)})
        if self.repository.commit_of(self.incoming_ref(run_id)) != commit:
            what, where = (
                f"somebody pushed the run {self.space.store.handle(run_id)} again in the meantime",
                self.remote.place(run_id),
            )
            why = "nothing was changed here; repeat the command to take the newest state"
            raise LoomError("MOVED_MEANWHILE", what, where=where, why=why, hint=self.pull_command(run_id))

    def diverged(self, run_id: str, found: Standing, so: str) -> LoomError:
        """Make the error of a run that went on here and there."""
        what, where = (
            f"the run {self.space.store.handle(run_id)} went on both here and at {self.remote.shown}; {so}",
            self.remote.place(run_id),
        )
        why = (
            f"{who(found.message)}. Loom does not merge two states. --keep-mine keeps yours and saves theirs as a new "
        )
        why += "run; --take-theirs takes theirs and saves yours as a new run"
        hint = f"{self.pull_command(run_id)} --keep-mine"
        return LoomError("DIVERGED", what, where=where, why=why, hint=hint, exit_code=EXIT_HELD)

    def pull_command(self, run_id: str) -> str:
        """Give the command line that pulls a run from here."""
        return f"loomctl pull {self.space.store.handle(run_id)}{self.remote.option}"


def commit_text(where: repository.Repository, commit: str, run_id: str, remote: Remote) -> bytes:
    """Give a commit of a run as git holds it. Raises BAD_HANDOFF for one that says too much, and GIT_FAILED."""
    try:
        return where.commit_text(commit, _LONGEST_MESSAGE)
    except ValueError as error:
        raise bad_handoff(remote, run_id, str(error)) from None


def read_message(text: bytes, run_id: str, remote: Remote) -> Message:
    """Read what a commit says. text: as git holds it. Raises BAD_HANDOFF, NEWER_HANDOFF, and RUN_ID_MISMATCH."""
    body = text.partition(b"\n\n")[2].partition(b"\n\n")[2]
    where, unread = remote.place(run_id), "Loom read nothing of it and changed nothing here"
    try:
        raw = files.parse_json(body.decode("utf-8", "replace").encode(), where=where)
    except LoomError as error:
        raise bad_handoff(remote, run_id, f"its commit message cannot be read ({error.code})") from None
    raw = raw if isinstance(raw, dict) else {}
    version = raw.get("schema_version")
    version = version if type(version) is int else None
    if version is not None and version > SCHEMA:
        what = f"a newer Loom pushed the run (handoff schema {version}; this one reads {SCHEMA})"
        raise LoomError("NEWER_HANDOFF", what, where=where, why=unread, hint=UPDATE, exit_code=EXIT_SKEW)
    fits = (
        version is not None
        and version >= OLDEST
        and all(isinstance(raw.get(key), str) for key in ("run_id", "at", "by", "machine"))
    )
    if not fits or type(raw.get("outputs")) is not bool or not isinstance(raw.get("summary"), dict):
        raise bad_handoff(remote, run_id, "its commit was not made by loomctl push")
    if raw["run_id"] != run_id:
        what = f"the remote's run {run_id} calls itself {one_line(raw['run_id'], 80)}"
        raise LoomError("RUN_ID_MISMATCH", what, where=where, why=unread, hint=remote.listing)
    listed = raw.get("left_out")
    pairs = [pair for pair in listed if isinstance(pair, list)] if isinstance(listed, list) else []
    named = tuple((pair[0], pair[1]) for pair in pairs if [type(part) for part in pair] == [str, str])
    summary = {key: held for key, held in raw["summary"].items() if type(held) is _SUMMARY.get(key)}
    return Message(run_id, raw["at"], raw["by"], raw["machine"], raw["outputs"], named, summary)


def _trouble(mode: str, kind: str, size: int, path: str) -> str:
    is_folder = kind == "tree"
    why = carried.trouble(path, is_folder=is_folder)
    if why or is_folder:
        return why
    if kind != "blob" or mode not in ("100644", "100755"):
        return "is not a plain file"
    first, _, rest = path.partition("/")
    parts = path.split("/")
    is_of_run = first == "run" and bool(rest) and not carried.is_this_machines(rest)
    is_blob = len(parts) == 4 and parts == ["blobs", "sha256", parts[3][:2], parts[3]] and blobs.is_sha256(parts[3])
    if not (is_of_run or is_blob):
        return "does not belong in a run"
    limit = files.LARGEST_JSON if path in (carried.STATE, carried.PLAN) else carried.LARGEST_FILE
    return f"is too large ({size:,} bytes)" if not 0 <= size <= (blobs.LARGEST if is_blob else limit) else ""


def who(message: Message | None) -> str:
    """Say who pushed a commit, when, and at which step, on one line."""
    return message.who() if message is not None else "somebody pushed it"


def log_warnings(space: Workspace, run_id: str) -> list[str]:
    """Say, before and after a run is handed on, that its log is damaged; empty where it is not."""
    found = log_verdict.warning(space.store, run_id)
    return [f"Run {space.store.handle(run_id)}: {found}"] if found else []


def _fit(run_id: str) -> str:
    if not repository.fits_a_ref(checked_id(run_id)):
        what, why = (
            f"the run id {run_id!r:.80} cannot be part of a git ref",
            "a ref must not end with '.lock' or '.'",
        )
        raise LoomError("BAD_ID", what, why=why, hint=f"loomctl runs archive {run_id}", exit_code=EXIT_USAGE)
    return run_id


def log_of(look: Look) -> bytes:
    """Give a run's log as it was looked at; empty where none is carried."""
    entry = look.files.get(LOG)
    return files.read_bytes(entry.source, limit=carried.LARGEST_FILE)[: entry.size] if entry is not None else b""
