"""What a checkout holds as its user's code, and what a commit holds: to be compared byte for byte."""

import os
import subprocess
from pathlib import Path

import pytest

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


# ---- Checkouts as users have them.


def plain(root: Path) -> None:
    lay_out(root)


def unborn(root: Path) -> None:
    lay_out(root)
    git(root, "update-ref", "-d", "HEAD")


def without_an_index(root: Path) -> None:
    lay_out(root)
    (root / ".git" / "index").unlink()


def in_a_merge(root: Path) -> None:
    git(root, "checkout", "-q", "-b", "other")
    (root / "a.txt").write_text("theirs\n")
    git(root, "commit", "-q", "-am", "theirs")
    git(root, "checkout", "-q", "-")
    (root / "a.txt").write_text("mine\n")
    git(root, "commit", "-q", "-am", "mine")
    with pytest.raises(subprocess.CalledProcessError):
        git(root, "merge", "other")


def with_line_ends(root: Path) -> None:
    """Committed as LF and checked out as CRLF, by attributes; a mixed file; one in another encoding."""
    attributes = "*.txt text eol=crlf\n*.wide working-tree-encoding=UTF-16\n*.id ident\n"
    (root / ".gitattributes").write_text(attributes)
    (root / "b.txt").write_bytes(b"one\r\ntwo\r\n")
    (root / "c.wide").write_bytes("wide\n".encode("utf-16"))
    (root / "d.id").write_bytes(b"$Id: anything $\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "line ends")
    (root / "new.txt").write_bytes(b"mixed\r\nends\n")


def with_autocrlf(root: Path) -> None:
    git(root, "config", "core.autocrlf", "true")
    (root / "b.txt").write_bytes(b"one\r\ntwo\r\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "line ends")
    git(root, "config", "core.safecrlf", "true")
    (root / "new.txt").write_bytes(b"mixed\r\nends\n")


def hidden_from_git(root: Path) -> None:
    """Git is told to look away from some files; what they hold counts all the same."""
    for name in ("b", "c"):
        (root / name).write_text("one\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "more")
    git(root, "update-index", "--assume-unchanged", "b")
    git(root, "update-index", "--skip-worktree", "c")
    for name in ("b", "c"):
        (root / name).write_text("two\n")


def folder_for_a_file(root: Path) -> None:
    lay_out(root)
    (root / "a.txt").unlink()
    (root / "a.txt").mkdir()
    (root / "a.txt" / "inside").write_text("x")


def link_for_a_folder(root: Path) -> None:
    """Files that git tracks behind a link are gone, as git sees it."""
    for name in ("one", "two"):
        (root / name).mkdir()
        (root / name / "f").write_text(name)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "folders")
    (root / "one" / "f").unlink()
    (root / "one").rmdir()
    (root / "one").symlink_to("two")


def with_odd_settings(root: Path) -> None:
    """A user's settings that change what git does with an index."""
    for setting in ("core.splitIndex", "core.untrackedCache", "feature.manyFiles", "core.logAllRefUpdates"):
        git(root, "config", setting, "true")
    git(root, "config", "core.logAllRefUpdates", "always")
    git(root, "update-index", "--split-index")
    lay_out(root)


SCENES = (
    *(plain, unborn, without_an_index, in_a_merge, with_line_ends, with_autocrlf, hidden_from_git),
    *(folder_for_a_file, link_for_a_folder, with_odd_settings),
)
