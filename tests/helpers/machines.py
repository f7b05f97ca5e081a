"""Two clones of one project and the bare repository between them: the machines of tests that hand runs on."""

import hashlib
import subprocess
from pathlib import Path

from loomctl.flow import advance, resume
from loomctl.handoff import pull as pulling
from loomctl.handoff import push as pushing
from loomctl.handoff.handoff import Desk
from loomctl.handoff.pull import Pulled
from loomctl.handoff.push import Pushed
from tests.helpers.repositories import git
from tests.helpers.scenes import Scene

SECRET = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z04"


class Machine(Scene):
    """A clone, with what is done on it to runs."""

    def __init__(self, root: Path, server: Path) -> None:
        self.root, self.store = root, root / ".loom"
        git(root.parent, "clone", "-q", str(server), str(root))

    def desk(self, named: str | None = None) -> Desk:
        """Give the way to a remote."""
        return Desk(self.space(), named)

    def push(self, run_id: str, *, outputs: bool = False, named: str | None = None) -> Pushed:
        desk = self.desk(named)
        return pushing.send(desk, pushing.prepare(desk, run_id, outputs=outputs))

    def pull(self, run_id: str, keep: str = "", *, named: str | None = None) -> Pulled:
        desk = self.desk(named)
        return pulling.pull(desk, run_id, desk.repository.list_runs(desk.remote)[run_id], keep=keep)

    def done(self, run_id: str, response: str = "Done.") -> None:
        resume.resume(self.space(), run_id)
        advance.done(self.space(), run_id, response=response)

    def folder(self, run_id: str) -> Path:
        return self.store / "runs" / run_id

    def responses(self, run_id: str) -> list[str]:
        """Give what the ended stages of a run answered, in their order."""
        folder = self.folder(run_id)
        names = [one["stage"] for one in self.state_of(folder)["steps"] if one["stage"]]
        found = [folder / "stages" / name / "response.md" for name in names]
        return [path.read_text(encoding="utf-8") for path in found if path.exists()]


def server_of(base: Path) -> Path:
    """Make the bare repository, with a branch that has a commit."""
    server = base / "server.git"
    git(base, "init", "-q", "--bare", "-b", "main", str(server))
    first = base / "first"
    git(base, "clone", "-q", str(server), str(first))
    (first / "a.txt").write_text("one\n", encoding="utf-8")
    git(first, "add", ".")
    git(first, "commit", "-q", "-m", "first")
    git(first, "push", "-q", "origin", "HEAD:refs/heads/main")
    return server


def own_of_the_user(root: Path) -> dict[str, str]:
    """Give a digest of all of a clone that is its user's: working tree, index, HEAD, branches, settings, hooks.

    Of Loom's folder what its user wrote: workflows and settings. Loom's refs and the objects are left out, and what
    stands in packed-refs of Loom's.
    """
    found = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        apart = (".git/objects", ".git/refs/loom", ".git/logs/refs/loom")
        if not path.is_file() or any(name == one or name.startswith(f"{one}/") for one in apart):
            continue
        if name.startswith(".loom/") and name != ".loom/config.yaml" and not name.startswith(".loom/workflows/"):
            continue
        data = path.read_bytes()
        if name == ".git/packed-refs":
            data = b"".join(line for line in data.splitlines(keepends=True) if b"refs/loom/" not in line)
        found[name] = hashlib.sha256(data).hexdigest()
    return found


def tips(server: Path) -> dict[str, str]:
    """Give the refs of the bare repository."""
    lines = subprocess.run(["git", "show-ref"], cwd=server, capture_output=True, text=True, check=False).stdout
    return {name: oid for oid, name in (line.split() for line in lines.splitlines())}
