"""What a push carries of a run's code, beside its state: whether the remote lacks it, and what goes along (D77)."""

from collections.abc import Sequence
from typing import NamedTuple

from loomctl.handoff import remotes, work
from loomctl.handoff.handoff import Desk
from loomctl.handoff.repository import Move
from loomctl.kit import clock
from loomctl.kit.errors import LoomError
from loomctl.kit.text.fences import one_line


class Code(NamedTuple):
    """Code that the remote lacks. commit: of it here; theirs: what the remote has, None where it has none.

    base: the commit that it goes on from; files, bytes: what differs from that; commits: how many of the user's own go
    along, None where nobody knows; left_out: files that are not in it, with the reason; is_apart: the remote's is no
    part of this one.
    """

    commit: str
    theirs: str | None
    base: str | None
    files: int
    bytes: int
    commits: int | None
    left_out: Sequence[tuple[str, str]]
    is_apart: bool


class Prepared(NamedTuple):
    """The code to be pushed, if any, and why there is none if there should be."""

    code: Code | None
    note: str = ""


class There(NamedTuple):
    """The commits that a remote has of a run, None where it has none."""

    state: str | None
    code: str | None


def listed(desk: Desk, run_id: str) -> There:
    """Ask a remote what it has of a run, of state and code at one moment. Raises as a remote does."""
    names = remotes.RUNS + run_id, work.WORK + run_id
    found = desk.repository.list_refs(desk.remote, *names)
    return There(*(found.get(name) for name in names))


def prepare(desk: Desk, run_id: str, theirs: str | None) -> Prepared:
    """Tell what of a run's code a push would send. What is wrong with the remote's keeps no state from being pushed.

    theirs: its commit there, as it was just listed.
    """
    repo, ref = desk.repository, work.WORK + run_id
    here = repo.commit_of(ref)
    if here is None:
        return Prepared(None)
    try:
        is_apart = theirs is not None and not repo.is_ancestor(theirs, here)
        if theirs == here:
            return Prepared(None)
        if theirs is not None and is_apart:
            get(desk, run_id, theirs)
            if repo.is_ancestor(here, theirs):
                repo.set_refs({incoming_ref(desk, run_id): None})
                return Prepared(None)
        said, _, _ = work.read(repo, here)
        files, size = _differences(desk, said.base, here)
        commits = _commits(desk, said.base, theirs)
    except (LoomError, ValueError) as error:
        why = f"{error.code}: {error.what}" if isinstance(error, LoomError) else str(error)
        return Prepared(None, f"The code of the run stays here: {one_line(why, 300)}")
    return Prepared(Code(here, theirs, said.base, files, size, commits, said.left_out, is_apart))


def incoming_ref(desk: Desk, run_id: str) -> str:
    """Name the ref of code that was fetched and is not taken yet."""
    return f"refs/loom/arriving/{desk.remote.key}/{run_id}"


def get(desk: Desk, run_id: str, commit: str) -> None:
    """Have a remote's code here. Raises as fetching does, and MOVED_MEANWHILE where it is no longer that."""
    if commit in desk.commits_here():
        return
    ref = incoming_ref(desk, run_id)
    desk.repository.fetch(desk.remote, {run_id: ref}, below=work.WORK)
    if desk.repository.commit_of(ref) != commit:
        what = f"somebody pushed the code of the run {desk.space.store.handle(run_id)} again in the meantime"
        why, hint = "nothing was changed here; repeat the command", desk.pull_command(run_id)
        raise LoomError("MOVED_MEANWHILE", what, where=f"{desk.remote.shown} {work.WORK}{run_id}", why=why, hint=hint)


def move(desk: Desk, run_id: str, code: Code) -> Move:
    """Give what the push does to the remote's code: nothing that anybody saved is lost of it. Raises GIT_FAILED."""
    commit = code.commit
    if code.is_apart and code.theirs is not None:
        commit = join(desk, run_id, commit, code.theirs, now=commit)
    desk.repository.set_refs({incoming_ref(desk, run_id): None})
    return Move(work.WORK + run_id, commit, code.theirs)


def join(desk: Desk, run_id: str, chosen: str, other: str, *, now: str) -> str:
    """Make the run's code here be what one commit holds, with another in its history; gives the new commit.

    now: what it is. Raises GIT_FAILED, also where it is no longer that.
    """
    repo = desk.repository
    said, tree, _ = work.read(repo, chosen)
    joined = work.write(repo, tree, (said.base, chosen, other), said._replace(at=clock.now()))
    repo.ask("update-ref", "--no-deref", work.WORK + run_id, joined, now)
    return joined


def _differences(desk: Desk, base: str | None, commit: str) -> tuple[int, int]:
    """Count the files that differ from the commit that the code goes on from, and the bytes of those that are there."""
    repo = desk.repository
    if base is None:
        listed = repo.ask("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0")
        oids = [entry.split(b"\t")[0].split(b" ")[2] for entry in listed if entry]
    else:
        words = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", base, commit)
        listed = repo.ask(*words).split(b"\0")
        oids = [entry.split(b" ")[3] for entry in listed if entry.startswith(b":")]
    there = [oid for oid in oids if oid.strip(b"0")]
    answer = repo.ask(
        "cat-file", "--batch-check=%(objecttype) %(objectsize)", given=b"".join(b"%b\n" % o for o in there)
    )
    sizes = (line.split() for line in answer.splitlines())
    return len(oids), sum(int(size) for kind, size in (pair for pair in sizes if len(pair) == 2) if kind == b"blob")


def _commits(desk: Desk, base: str | None, theirs: str | None) -> int | None:
    """Count the commits of the user's own that go along, by what was last fetched of the remote's branches."""
    if base is None:
        return 0
    known = desk.repository.refs(f"refs/remotes/{desk.remote.name}/")
    if not known:
        return None
    words = ["rev-list", "--count", base, "--not", *dict.fromkeys([*known.values(), *([theirs] if theirs else [])])]
    done = desk.repository.run(*words)
    return int(done.out) if done.code == 0 else None
