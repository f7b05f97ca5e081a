"""Draw by lot which half of the tools is kept aside: no rule may be written with a look at their recordings.

    python benchmarks/failures/draw.py

The lot has no choice in it. The seed is the sha256 of `tools.txt`, the sorted list of names; a tool's lot is the
sha256 of the seed and its name; the half with the smallest lots is kept aside and stands in `aside.txt`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOOLS = HERE / "tools.txt"
ASIDE = HERE / "aside.txt"


def draw(names: list[str]) -> list[str]:
    """Return the names of the half that is kept aside, sorted."""
    seed = hashlib.sha256("".join(f"{name}\n" for name in sorted(names)).encode()).hexdigest()
    lots = sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).hexdigest())
    return sorted(lots[: len(names) // 2])


def main() -> None:
    """Write the draw."""
    ASIDE.write_text("".join(f"{name}\n" for name in draw(TOOLS.read_text(encoding="utf-8").split())), encoding="utf-8")


if __name__ == "__main__":
    main()
