"""What a checkout holds as its user's code, and what a commit holds: to be compared byte for byte."""

import os
import subprocess
from pathlib import Path

from tests.helpers.repositories import git

Held = dict[str, tuple[str, bytes]]


def held(root: Path) -> Held:
    """Give the mode and the content of each file that git does not ignore; of a link where it leads."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-c", "-o", "--exclude-standard"], cwd=root, check=True, capture_output=True
    )
    found: Held = {}
    for name in filter(None, os.fsdecode(listed.stdout).split("\0")):
        path = root / name
        if ".loom" in name.split("/") or path.parent.resolve() != path.parent:
            continue
        if path.is_symlink():
            found[name] = ("120000", os.fsencode(os.readlink(path)))
        elif path.is_file():
            found[name] = ("100755" if os.access(path, os.X_OK) else "100644", path.read_bytes())
    return found


def kept(root: Path, commit: str) -> Held:
    """Give the same of a commit."""
    words = ["git", "ls-tree", "-r", "-z", "--full-tree", commit]
    listed = subprocess.run(words, cwd=root, check=True, capture_output=True).stdout
    found: Held = {}
    for entry in filter(None, listed.split(b"\0")):
        about, _, name = entry.partition(b"\t")
        mode, kind, oid = about.decode().split()
        if kind == "blob":
            data = subprocess.run(["git", "cat-file", "blob", oid], cwd=root, check=True, capture_output=True).stdout
            found[os.fsdecode(name)] = (mode, data)
    return found


def lay_out(root: Path, *, stage: bool = True) -> None:
    """Change a checkout in each way: staged, changed, deleted, untracked, ignored, links, modes, odd names."""
    (root / ".gitignore").write_text("ignored\n*.tmp\n")
    (root / "deep" / "er").mkdir(parents=True)
    for name in ("deep/er/staged", "deep/gone", "deep/tracked and changed", "tool"):
        (root / name).write_text(f"{name}\n")
    (root / "forced.tmp").write_text("tracked, though ignored\n")
    (root / "tool").chmod(0o755)
    if stage:
        git(root, "add", "-A")
        git(root, "add", "-f", "forced.tmp")
        git(root, "commit", "-q", "-m", "laid out")
    (root / "deep" / "gone").unlink()
    (root / "deep" / "tracked and changed").write_bytes(b"\0\xff binary\r\n")
    (root / "tool").chmod(0o644)
    for name in ("ünträcked", "with space", "-dash", 'quo"te', "tab\tand\nline", "deep/new\\slash"):
        (root / name).write_text(name)
    (root / os.fsdecode(b"not-utf8-\xff")).write_bytes(b"x")
    (root / "link").symlink_to("deep/er")
    (root / "nowhere").symlink_to("nothing here")
    (root / "ignored").write_text("stays")
    (root / "empty").mkdir()
    (root / "deep" / "er" / "staged").write_text("staged anew\n")
    if stage:
        git(root, "add", "deep/er/staged")
        (root / "deep" / "er" / "staged").write_text("and changed again\n")
