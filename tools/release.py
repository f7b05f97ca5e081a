"""Make a version: changelog, version numbers, commit, tag, wheel, source archive, checksums and a bill of materials.

Everything is made in a worktree of its own. The branch, its files and the tags change at the very end, when nothing of
that failed. Run it with `scripts/release`, which has the tools that it calls.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAGMENTS, CHANGELOG, RECORDED = "changes.d", "CHANGELOG.md", "tests/upgrade/releases"
VERSION = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}")
PLACES = {
    "loomctl/kit/package.py": '__version__ = "{}"',
    "bin/loomctl": "version={} #",
    "docs/how-to/check-workflows-in-ci.md": "rev: v{}\n",
    **dict.fromkeys(
        (
            ".claude-plugin/plugin.json",
            ".codex-plugin/plugin.json",
            ".plugin/plugin.json",
            "gemini-extension.json",
            "plugin.json",
            "qwen-extension.json",
        ),
        '"version": "{}"',
    ),
}
"""Every file that names the version, and how."""
MADE = ("loomctl-*.whl", "loomctl-*.tar.gz", "loomctl-*.cdx.json", "SHA256SUMS")


class Refusal(Exception):  # noqa: N818 -- nothing went wrong
    """A release that cannot be made: what is wrong, and what to do."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what}; hint: {hint}")


def run(folder: Path, *command: str, **environment: str) -> str:
    """Run a command and give what it prints. Raises Refusal with its own words if it fails."""
    environ = {**os.environ, **environment}
    ended = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if ended.returncode:
        said = (ended.stderr.strip() or ended.stdout.strip())[-2000:]
        raise Refusal(
            f"{' '.join((Path(command[0]).name, *command[1:4]))} … ended with {ended.returncode}",
            said or "it said nothing",
        )
    return ended.stdout.strip()


def git(folder: Path, *arguments: str) -> str:
    """Run git and give what it prints."""
    return run(folder, "git", *arguments)


def numbers(version: str) -> tuple[int, ...]:
    """Read X.Y.Z. Raises Refusal."""
    if not VERSION.fullmatch(version):
        raise Refusal(f"{version!r} is no version", "three numbers, such as 0.2.0")
    return tuple(int(part) for part in version.split("."))


def current(folder: Path) -> str:
    """Give the version that a checkout has."""
    found = re.search(r'^__version__ = "(.+)"$', (folder / "loomctl/kit/package.py").read_text("utf-8"), re.MULTILINE)
    assert found
    return found[1]


def fragments(folder: Path) -> list[Path]:
    """Give the fragments of the changelog, by name."""
    return sorted(path for path in (folder / FRAGMENTS).glob("*.md") if path.name != "README.md")


def check(folder: Path, version: str) -> None:
    """Refuse what cannot be released from this checkout."""
    if git(folder, "status", "--porcelain"):
        raise Refusal("there are changes that are not committed", "git status; commit or stash them")
    if not git(folder, "branch", "--show-current"):
        raise Refusal("no branch is checked out", "git switch main")
    tags = [tag[1:] for tag in git(folder, "tag", "--list", "v*").splitlines() if VERSION.fullmatch(tag[1:])]
    newest = max([current(folder), *tags], key=numbers)
    if numbers(version) < numbers(newest) or version in tags:
        raise Refusal(f"{version} is not newer than {newest}", "name a later one")
    for tag in tags:
        if not (folder / RECORDED / tag).is_dir():
            raise Refusal(f"release {tag} is not recorded in {RECORDED}", f"python tests/upgrade/make.py {tag} v{tag}")
    if "/OWNER/" in (folder / "SECURITY.md").read_text("utf-8"):
        raise Refusal("the repository is still named OWNER", "run the git grep line under Releases in CONTRIBUTING.md")
    changelog = (folder / CHANGELOG).read_text("utf-8")
    if re.search(rf"^## {re.escape(version)} \((?!unreleased)", changelog, re.MULTILINE):
        way = f"if nobody has it yet: git tag --annotate v{version} --message 'Loom {version}'; else name a later one"
        raise Refusal(f"{CHANGELOG} has {version} already", way)
    opened = re.search(r"^## (\S+) \(unreleased\)$", changelog, re.MULTILINE)
    if opened and opened[1] != version:
        raise Refusal(f"{CHANGELOG} has an open section for {opened[1]}", f"scripts/release {opened[1]}")
    if not opened and not fragments(folder):
        raise Refusal(f"{FRAGMENTS} has no fragment: nothing changed", f"write one, as {FRAGMENTS}/README.md says")


def write_changelog(folder: Path, version: str, day: str) -> str:
    """Move the fragments into the changelog; give the section.

    The version's section is made on top, or the open one (`(unreleased)`) is dated and the fragments end it.
    """
    path = folder / CHANGELOG
    text = path.read_text("utf-8")
    added = "".join(fragment.read_text("utf-8").strip() + "\n" for fragment in fragments(folder))
    for fragment in fragments(folder):
        fragment.unlink()
    title = f"## {version} ({day})"
    head, opened, body = text.partition(f"## {version} (unreleased)\n")
    if not opened:
        head, mark, rest = text.partition("\n## ")
        head, body = f"{head}\n", f"\n{added}"
        rest = f"\n{mark[1:]}{rest}" if mark else ""
    else:
        body, mark, rest = body.partition("\n## ")
        body, rest = f"{body.rstrip()}\n{added}", f"{mark}{rest}"
    path.write_text(f"{head}{title}\n{body}{rest}", encoding="utf-8")
    return f"{title}\n{body}".strip()


def write_version(folder: Path, version: str) -> None:
    """Write the version into every place that names it."""
    old = current(folder)
    for name, form in PLACES.items():
        path = folder / name
        text = path.read_text("utf-8")
        if text.count(form.format(old)) != 1:
            raise Refusal(f"{name} does not name {old} once", f"mend it: {form.format(old)}")
        path.write_text(text.replace(form.format(old), form.format(version)), encoding="utf-8")


@contextlib.contextmanager
def worktree(folder: Path, commit: str) -> Iterator[Path]:
    """Check a commit out in a folder of its own, with the modes that it has in git whatever the umask is."""
    git(folder, "worktree", "prune")
    with tempfile.TemporaryDirectory(prefix="loom-release-") as made:
        tree, mask = Path(made) / "loomctl", os.umask(0o022)
        try:
            git(folder, "worktree", "add", "--quiet", "--detach", str(tree), commit)
            yield tree
        finally:
            os.umask(mask)
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=folder, capture_output=True, check=False)


def build(tree: Path, out: Path) -> None:
    """Build a clean checkout's wheel, source archive, bill of materials and their checksums into a folder.

    The same commit gives the same bytes: times are the commit's, tools and packages those of the locks.
    """
    version, epoch = current(tree), git(tree, "log", "-1", "--format=%ct")
    python = sys.executable
    run(tree, python, "-m", "build", "--no-isolation", "--outdir", str(out), str(tree), SOURCE_DATE_EPOCH=epoch)
    with tempfile.TemporaryDirectory() as made:
        project = Path(made) / "pyproject.toml"  # the tool reads no version that another file has
        text = (tree / "pyproject.toml").read_text("utf-8")
        project.write_text(
            text.replace('\ndynamic = ["version", "readme"]\n', f'\nversion = "{version}"\n', 1), encoding="utf-8"
        )
        bill = str(out / f"loomctl-{version}.cdx.json")
        told = ("requirements", "requirements.lock", "--pyproject", str(project), "--output-reproducible", "-o", bill)
        run(tree, python, "-W", "ignore", "-m", "cyclonedx_py", *told, SOURCE_DATE_EPOCH=epoch)
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(out.iterdir())]
    (out / "SHA256SUMS").write_text("".join(sums), encoding="ascii")


def put(made: Path, dist: Path) -> None:
    """Put what was built into dist/, in the place of an earlier version's."""
    dist.mkdir(exist_ok=True)
    for pattern in MADE:
        for path in dist.glob(pattern):
            path.unlink()
    for path in sorted(made.iterdir()):
        shutil.copyfile(path, dist / path.name)


def release(folder: Path, version: str, *, dry: bool) -> str:
    """Make a version and give what there is to say of it; `dry` changes nothing. Raises Refusal.

    Where its tag is what is checked out, its files are built anew, byte for byte.
    """
    numbers(version)
    tag = f"v{version}"
    old = git(folder, "rev-parse", "HEAD")
    tagged = git(folder, "tag", "--list", tag) and git(folder, "rev-parse", f"{tag}^{{commit}}")
    if tagged and tagged != old:
        left = git(folder, "log", "-1", "--format=%P", tag) == old  # it was ended before the branch went on to it
        way = f"git merge --ff-only {tag}" if left else f"to build it anew: git switch --detach {tag}"
        raise Refusal(f"there is a tag {tag}, and it is not checked out", way)
    if not tagged:
        check(folder, version)
    elif current(folder) != version:
        raise Refusal(f"the tag {tag} is on a commit of {current(folder)}", f"git tag --delete {tag}")
    said = ""
    with worktree(folder, old) as tree, tempfile.TemporaryDirectory(prefix="loom-dist-") as out:
        if not tagged:
            day = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
            said = write_changelog(tree, version, day) + "\n\n"
            write_version(tree, version)
            git(tree, "add", "--all")
            git(tree, "commit", "--quiet", "--message", f"Release {version}")
        new = git(tree, "rev-parse", "HEAD")
        build(tree, Path(out))
        for path in sorted(Path(out).iterdir()):
            said += f"{path.stat().st_size:>9,}  {path.name}\n"
        if dry:
            return f"{said}Nothing was changed: this was --dry-run."
        put(Path(out), folder / "dist")
    if not tagged:
        git(folder, "tag", "--annotate", tag, "--message", f"Loom {version}", new)
        try:
            git(folder, "merge", "--quiet", "--ff-only", new)
        except BaseException:
            git(folder, "tag", "--delete", tag)
            raise
    return f"{said}Made {tag} in dist/. To publish it: git push --atomic origin HEAD {tag}"


def main() -> int:
    """Read the arguments and make the version."""
    parser = argparse.ArgumentParser(prog="scripts/release", description="Make a version of Loom.")
    parser.add_argument("version", help="three numbers, such as 0.2.0")
    parser.add_argument("--dry-run", action="store_true", help="do all of it, and change nothing")
    told = parser.parse_args()
    try:
        print(release(Path.cwd(), told.version, dry=told.dry_run))
    except Refusal as refusal:
        print(f"scripts/release: {refusal}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
