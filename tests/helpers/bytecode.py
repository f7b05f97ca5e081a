"""What Python compiles of the package, shared by all copies of it: compiling it takes longer than a test.

Python takes what was compiled for the source's time and size, so that a copy which was changed is compiled anew.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def share(cache: Path, copy: Path) -> Path:
    """Let a copy of the checkout use what is compiled of the checkout itself; give the link that leads there.

    cache: what XDG_CACHE_HOME is for the copy's processes. copy: with its files' times.
    """
    link, own = (cache / "loom" / "pycache" / folder.relative_to("/") for folder in (copy, CHECKOUT))
    own.mkdir(parents=True, exist_ok=True)
    forget(link)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(own)
    return link


def forget(link: Path) -> None:
    """Take such a link away, or the folder in its place: another run of tests may have cleared all of them."""
    if link.is_dir() and not link.is_symlink():
        shutil.rmtree(link)
    link.unlink(missing_ok=True)


def share_installed(cache: Path, plugins: Path) -> list[Path]:
    """Let each copy below an assistant's folder of plugins do so: the assistant gave its files new times."""
    copies = [path.parents[1] for path in plugins.glob("cache/loom/loom/*/loomctl/__main__.py")]
    for copy in copies:
        for path in (copy / "loomctl").rglob("*.py"):
            times = (CHECKOUT / path.relative_to(copy)).stat()
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return [share(cache, copy) for copy in copies]
