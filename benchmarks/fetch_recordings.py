"""Fetches the recordings that `reduction.py` keeps aside: python benchmarks/fetch_recordings.py FOLDER."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import aider_history


def main() -> int:
    """Download each archive with pip, check both hashes, and lay out the recordings; the exit code is 1 at a fault."""
    if len(sys.argv) != 2:
        print("usage: python benchmarks/fetch_recordings.py FOLDER", file=sys.stderr)
        return 2
    for entry in json.loads(Path(__file__).with_name("recordings.json").read_text(encoding="utf-8")):
        with tempfile.TemporaryDirectory() as temporary:
            wanted = f"{entry['package']}=={entry['version']}"
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", entry["package"]]
            if subprocess.run([*command, "-d", temporary, wanted], check=False).returncode:
                print(f"{wanted} could not be downloaded", file=sys.stderr)
                return 1
            archive = Path(temporary, entry["archive"])
            if hashlib.sha256(archive.read_bytes()).hexdigest() != entry["archive_sha256"]:
                print(f"{archive.name} is another file than the one that was labelled", file=sys.stderr)
                return 1
            with tarfile.open(archive) as opened:
                member = opened.extractfile(entry["member"])
                data = member.read() if member else b""
        if hashlib.sha256(data).hexdigest() != entry["member_sha256"]:
            print(f"{entry['member']} is another file than the one that was labelled", file=sys.stderr)
            return 1
        folder = Path(sys.argv[1], "transcripts", "aider")
        folder.mkdir(parents=True, exist_ok=True)
        for day, text in aider_history.days(data.decode()).items():
            if f"aider-{day}.md" in entry["recordings"]:
                partial = folder / f"aider-{day}.partial"
                partial.write_text(text, encoding="utf-8")
                partial.replace(folder / f"aider-{day}.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
