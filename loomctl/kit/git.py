"""What Loom asks git, with nothing of the repository's own configuration allowed to run."""

from __future__ import annotations

import os
import time

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# A repository's configuration may name programs; none of them is run for Loom.
SAFE = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "diff.external="),
    *("-c", "safe.bareRepository=explicit", "--no-pager"),
)
_SURROUNDINGS = {
    "GIT_ALLOW_PROTOCOL": "none",  # objects that are missing are not fetched, whatever the repository allows
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_OID = frozenset("0123456789abcdef")


class Head(NamedTuple):
    """branch and commit of a checkout, each None where there is none."""

    branch: str | None
    commit: str | None


def top_of(folder: str) -> str | None:
    """Give the top of the checkout that a folder lies in; None: no repository."""
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == os.path.dirname(folder):
            return None
        folder = os.path.dirname(folder)
    return folder


def git_folders(top: str) -> tuple[str, str] | None:
    """Give `(git folder, common folder)` of a checkout's top; they differ in a linked worktree. None: no repository."""
    dot_git = os.path.join(top, ".git")
    if os.path.isdir(dot_git):
        return dot_git, dot_git
    line = _first_line(dot_git)
    if not line.startswith("gitdir:"):
        return None
    folder = os.path.normpath(os.path.join(top, line[len("gitdir:") :].strip()))
    common = _first_line(os.path.join(folder, "commondir"))
    return folder, os.path.normpath(os.path.join(folder, common)) if common else folder


def is_worktree_of(top: str, folder: str, common: str) -> bool:
    """Tell whether a repository knows the checkout at `top` as its own worktree.

    A `.git` file alone proves nothing: a project that was unpacked could name any repository of its user's.
    """
    kept = os.path.join(os.path.realpath(common), "worktrees")
    back = _first_line(os.path.join(folder, "gitdir"))
    named = os.path.realpath(os.path.join(folder, back)) if back else ""
    return os.path.dirname(os.path.realpath(folder)) == kept and named == os.path.realpath(os.path.join(top, ".git"))


def worktrees(top: str) -> list[str]:
    """List the tops of the linked worktrees of the repository at `top`, there or not."""
    folder = os.path.join(top, ".git", "worktrees")
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    lines = (_first_line(os.path.join(folder, name, "gitdir")) for name in names)
    return [os.path.dirname(os.path.join(folder, line)) for line in lines if line]


def head(top: str) -> Head:
    """Read branch and commit from git's files, without starting git."""
    folders = git_folders(top)
    if folders is None:
        return Head(None, None)
    line = _first_line(os.path.join(folders[0], "HEAD"))
    if not line.startswith("ref:"):
        return Head(None, _oid(line))
    ref = line[len("ref:") :].strip()
    # `.invalid` stands there where the refs are kept in another form than files.
    if ".." in ref or not ref.startswith("refs/") or ref == "refs/heads/.invalid":
        return Head(None, None)
    branch = ref.removeprefix("refs/heads/")
    for folder in folders:
        found = _oid(_first_line(os.path.join(folder, ref)))
        if found:
            return Head(branch, found)
    return Head(branch, _packed(folders[1], ref))


def is_dirty(folder: str, *, patience: float = 0.1) -> bool | None:
    """Ask git whether tracked or untracked files below a folder differ, Loom's and FABER's own apart.

    None: no answer in time. patience: seconds (D25: 100 ms at most).
    """
    answer = _status(folder, patience, limit=1)
    return None if answer is None else bool(answer)


def changed(folder: str, *, patience: float = 2.0) -> list[str]:
    """Name the files of which `is_dirty` tells, as git names them from the top; none where it gives no answer."""
    answer = _status(folder, patience, "-z") or b""
    return [os.fsdecode(entry[3:]) for entry in answer.split(b"\0")[:-1]]


def _status(folder: str, patience: float, *words: str, limit: int = 1 << 20) -> bytes | None:
    asked = ["status", "--porcelain", *words, "--no-renames", "--ignore-submodules", "--", "."]
    apart = [f":(exclude,glob)**/{name}/**" for name in (".loom", ".fractary")]
    return output([*asked, *apart], folder, patience=patience, limit=limit)


def is_tracked(path: str) -> bool:
    """Tell whether a file is in its repository's history, so that git can bring it back."""
    answer = output(["ls-tree", "--name-only", "HEAD", "--", path], os.path.dirname(path), patience=2.0)
    return bool(answer and answer.strip())


def output(
    arguments: Sequence[str],
    folder: str,
    *,
    patience: float,
    limit: int = 1 << 20,
    given: int | None = None,
    more: Mapping[str, str] | None = None,
) -> bytes | None:
    """Run git without a shell in `folder` and give what it printed; None if it failed or took over `patience` seconds.

    What goes beyond `limit` bytes is not read. Git is told which repository it is about, and looks for none itself: it
    would take a folder of the project that only looks like a repository for one, with the programs that its
    configuration names. Without a repository it is asked nothing. The checkout is the one that the folder lies in,
    whatever `core.worktree` says, and filters that the repository's own configuration names are off. given: the
    descriptor of its standard input; more: of its environment, such as an index that is not the user's.
    """
    deadline = time.monotonic() + patience
    top = top_of(os.path.realpath(folder))
    folders = git_folders(top) if top is not None else None
    if top is None or folders is None:
        return None
    surroundings = {**_surroundings(), "GIT_CEILING_DIRECTORIES": os.path.dirname(top), **(more or {})}
    if not is_trusted(top, folders[0], patience=patience):
        return None
    command = ["git", f"--git-dir={folders[0]}", f"--work-tree={top}", *SAFE]
    filters = _own_filters(command, top, folders, surroundings, deadline)
    if filters is None:
        return None
    for name in filters:
        command += ["-c", f"{name}={'false' if name.endswith('.required') else ''}"]
    return _run([*command, *arguments], folder, surroundings, deadline, limit, given=given)


def said(*arguments: str, patience: float) -> bytes | None:
    """Ask git what no repository has a say in, such as the user's own settings; None as with `output`."""
    return _run(["git", *SAFE, *arguments], os.sep, _surroundings(), time.monotonic() + patience, 1 << 20)


def _surroundings() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("GIT_")} | _SURROUNDINGS


def is_trusted(top: str, folder: str, *, patience: float) -> bool:
    """Tell whether git would work in a checkout without being told where its git folder is.

    It looks then whose the repository is. It is asked only of what belongs to somebody else, which `safe.directory`
    may allow.
    """
    try:
        if all(os.lstat(one).st_uid == os.geteuid() for one in (top, os.path.join(top, ".git"), folder)):
            return True
    except OSError:
        return False
    command = ["git", *SAFE, "rev-parse", "--absolute-git-dir"]
    found = _run(command, top, _surroundings(), time.monotonic() + patience, 1 << 16)
    return found is not None and os.path.realpath(os.fsdecode(found.rstrip(b"\n"))) == os.path.realpath(folder)


def _own_filters(
    git: Sequence[str], top: str, folders: tuple[str, str], surroundings: Mapping[str, str], deadline: float
) -> list[str] | None:
    """Name the filter settings of the repository's own configuration; None where they cannot be told and turned off.

    Git is asked only where a configuration file may hold any. A filter of the user's own configuration is theirs.
    """
    own = (os.path.join(folders[1], "config"), os.path.join(folders[0], "config.worktree"))
    settings = b"\n".join(map(_content, own)).lower()
    if b"filter" not in settings and b"include" not in settings:
        return []
    command = [*git, "config", "--null", "--show-scope", "--includes", "--get-regexp", r"^filter\..*"]
    answer = _run(command, top, surroundings, deadline, 1 << 20, fine=(0, 1))
    if answer is None:
        return None
    parts = answer.split(b"\0")
    named = {
        os.fsdecode(setting.partition(b"\n")[0])
        for scope, setting in zip(parts[::2], parts[1::2], strict=False)
        if scope in (b"local", b"worktree")
    }
    found = sorted(name for name in named if name.endswith((".clean", ".smudge", ".process", ".required")))
    return None if any("=" in name for name in found) else found  # `-c` would take another setting's name from it


def _run(
    command: Sequence[str],
    folder: str,
    surroundings: Mapping[str, str],
    deadline: float,
    limit: int,
    *,
    fine: tuple[int, ...] = (0,),
    given: int | None = None,
) -> bytes | None:
    """Run a command until it ends, says more than `limit` bytes, or the deadline; it and its children end then."""
    import select
    import signal
    import subprocess

    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL if given is None else given,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=surroundings,
            start_new_session=True,
        )
    except (OSError, ValueError):  # no git; a word that no command line holds
        return None
    assert process.stdout is not None  # it is a pipe
    with process.stdout as said:
        reader = select.poll()
        reader.register(said, select.POLLIN)
        data = bytearray()
        try:
            while len(data) <= limit:
                left = deadline - time.monotonic()
                if left <= 0 or not reader.poll(left * 1000):
                    return None
                part = os.read(said.fileno(), 1 << 16)
                if not part:
                    process.wait(timeout=max(0.0, deadline - time.monotonic()))
                    return bytes(data) if process.returncode in fine else None
                data += part
            return bytes(data[:limit])
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.returncode is None:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):  # it has ended; the second is how macOS says so
                    pass
                process.wait()


def _packed(common: str, ref: str) -> str | None:
    data = _content(os.path.join(common, "packed-refs"))
    before, found, _ = data.partition(b" " + os.fsencode(ref) + b"\n")
    return _oid(os.fsdecode(before[before.rfind(b"\n") + 1 :])) if found else None


def is_oid(text: str) -> bool:
    """Tell whether a text is a full object id."""
    return len(text) in (40, 64) and _OID.issuperset(text)


def _oid(text: str) -> str | None:
    return text if is_oid(text) else None


def _first_line(path: str) -> str:
    return os.fsdecode(_content(path).partition(b"\n")[0]).strip()


def _content(path: str) -> bytes:
    try:
        return files.read_bytes(path)
    except (OSError, ValueError, LoomError):
        return b""


_PATIENCE = 2.0  # seconds that git may take


def user_name(folder: str) -> str:
    """Give the name of the person: as git calls the author of what is done in `folder`, else the login name.

    The login name is the account's own, not what an environment variable says of it.
    """
    asked = ("config", "user.name")
    answer = output(asked, folder, patience=_PATIENCE) or said(*asked, patience=_PATIENCE)
    name = answer.decode("utf-8", "replace").strip() if answer else ""
    return name or _login()


def _login() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container whose user has no name
        return f"user {os.getuid()}"
