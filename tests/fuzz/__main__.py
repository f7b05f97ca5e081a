"""Fuzzes one target with atheris: `python -m tests.fuzz TARGET CORPUS FINDINGS SECONDS`; `scripts/fuzz` sets it up."""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["loomctl", "tests.fuzz"]):
    from tests.fuzz.targets import SEEDS, TARGETS


def main(target: str, corpus: str, findings: str, seconds: str) -> None:
    """Fuzz until the time is over or something is found; libFuzzer ends the process."""
    folder = Path(corpus)
    folder.mkdir(parents=True, exist_ok=True)
    Path(findings).mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[target]):
        (folder / f"seed-{number}").write_bytes(seed)
    limits = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=2048", "-max_len=8192"]
    words = [sys.argv[0], *limits, f"-artifact_prefix={findings}/", "-print_final_stats=1", corpus]
    atheris.Setup(words, TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
