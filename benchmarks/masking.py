"""What masking finds, by what a secret is put into, and how often it masks what is none.

    python benchmarks/masking.py [FILE ...]

The secrets are those of `tests/helpers/secret_cases.py`: one for each beginning in the table of tokens, values
assigned to names, private keys. Each is put into each surrounding; it counts as hidden where nothing of it is left.
With files the masks in them are counted: in files without secrets each is one too many. `--show` prints them with what
is around.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from loomctl.kit.text.secrets import mask  # noqa: E402
from tests.helpers import secret_cases  # noqa: E402


def main() -> int:
    """Print the tables; the exit code is 1 where a secret was left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--show", action="store_true", help="print each mask in the files")
    options = parser.parse_args()
    kinds = {
        "tokens": list(secret_cases.tokens()),
        "assigned": list(secret_cases.assigned()),
        "private keys": list(secret_cases.private_keys()),
    }
    print("| put into |", " | ".join(kinds), "|\n|---|" + "---|" * len(kinds))
    left = 0
    for name, around in secret_cases.SURROUNDINGS.items():
        cells = []
        for cases in kinds.values():
            hidden = sum(case.secret not in mask(around(case.text))[0] for case in cases)
            left += len(cases) - hidden
            cells.append(f"{hidden} of {len(cases)}")
        print(f"| {name} |", " | ".join(cells), "|")
    if options.files:
        _count_in(options.files, show=options.show)
    return int(left > 0)


def _count_in(paths: list[Path], *, show: bool) -> None:
    letters = masks = with_masks = 0
    for path in paths:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        clean, count = mask(text)
        letters, masks, with_masks = letters + len(text), masks + count, with_masks + (count > 0)
        for found in re.finditer(r"\[masked: [^\]]*\]", clean) if show and count else ():
            print(f"{path}: {clean[max(0, found.start() - 60) : found.end() + 20]!r}")
    print(f"\n{masks} masks in {with_masks} of {len(paths)} files, {letters / 1e6:.1f} million letters")


if __name__ == "__main__":
    sys.exit(main())
