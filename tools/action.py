"""What action.yml runs: check, simulate and draw a repository's workflows, verify its runs, and comment on them.

Standard library alone, for any Python 3.10. Workflows may be a stranger's: their text is read by Loom, which executes
nothing of it, and is printed as data. Only `gh` gets the token.
"""

from __future__ import annotations

import glob
import json
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

LOOMCTL = Path(__file__).resolve().parents[1] / "bin/loomctl"
MARK = "<!-- loom: workflows -->"
ENDINGS = (".yaml", ".yml", ".json", ".dot", ".gv", ".fabro")
MOST = 60_000  # characters; GitHub takes 65,536 in a comment
PATIENCE = 300  # seconds for one call; the first sets up Loom's environment
TOKENS = ("GH_TOKEN", "GITHUB_TOKEN", "ACTIONS_RUNTIME_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN")


class Said(NamedTuple):
    """What a command printed, and whether it ended well."""

    text: str
    well: bool


class Finding(NamedTuple):
    """A workflow, and what was said of it; drawing is empty where it cannot be drawn."""

    path: str
    check: Said
    play: Said
    drawing: str


def loomctl(*arguments: str) -> Said:
    """Call Loom without the job's tokens; give what it prints on both streams."""
    environ = {name: value for name, value in os.environ.items() if name not in TOKENS}
    environ |= {"NO_COLOR": "1", "COLUMNS": "100"}
    command = [str(LOOMCTL), *arguments]
    try:
        ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return Said(f"loomctl {arguments[0]} took longer than {PATIENCE} seconds", well=False)
    return Said((ended.stdout + ended.stderr).strip(), well=ended.returncode == 0)


def chosen(patterns: str) -> list[str]:
    """Give the files that match the patterns, a line each; `!` before one takes its files out again.

    Links and what lies in git's own folder are left out: a stranger could have them lead to what is not the project's.
    """
    paths: set[str] = set()
    for line in filter(None, (line.strip() for line in patterns.splitlines())):
        found = set(glob.glob(line.lstrip("!"), recursive=True))
        paths = paths - found if line.startswith("!") else paths | found
    return sorted(path for path in paths if path.endswith(ENDINGS) and is_plain(path))


def is_plain(path: str) -> bool:
    """Tell whether there is a file, and no link on the way to it."""
    there = Path(path).is_file() and Path(path).resolve() == Path.cwd().resolve() / os.path.normpath(path)
    return there and ".git" not in Path(path).parts


def examine(path: str, outcomes: str) -> Finding:
    """Check a workflow, play it, and draw it. outcomes: the folder of scripted outcomes, each named as its workflow."""
    named = os.path.join(".", path)
    check = loomctl("check", named)
    script = os.path.join(outcomes, Path(path).stem + ".yaml")
    told = ("--outcomes", script) if outcomes and is_plain(script) else ()
    play = loomctl("simulate", named, *told) if check.well else Said("not run: the check failed", well=False)
    drawing = loomctl("graph", named) if check.well else Said("", well=False)
    return Finding(path, check, play, drawing.text if drawing.well else "")


def fenced(text: str, language: str = "text") -> str:
    """Put text into a fence that nothing in it can end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}\n"


def shown(path: str) -> str:
    """Give a path as code in a line of Markdown, whatever characters it has."""
    return "`" + re.sub(r"[`\n\r|<>&]", "_", path.encode("utf-8", "backslashreplace").decode()) + "`"


def markdown(findings: list[Finding], log: Said | None) -> str:
    """Tell what was found: a row for each workflow, the words of what failed, and drawings as space allows."""
    rows = ["| workflow | check | simulate |", "|---|---|---|"]
    rows += [
        f"| {shown(one.path)} | {_word(one.check)} | {_word(one.play) if one.check.well else 'not run'} |"
        for one in findings
    ]
    parts = [f"{MARK}\n### Loom's workflows\n", "\n".join(rows) + "\n" if findings else "There are none.\n"]
    if log is not None:
        parts.append(f"Logs of the runs in this repository: {_word(log)}\n")
    troubles = [(shown(one.path), one.play if one.check.well else one.check) for one in findings]
    troubles += [("`loomctl prove --log`", log)] if log is not None else []
    parts += [f"{name}\n\n{fenced(said.text[:4000])}" for name, said in troubles if not said.well]
    text, left = "", 0
    for part in (*parts, *(_folded(one) for one in findings if one.drawing)):
        fits = len(text) + len(part) < MOST
        text, left = (f"{text}{part}\n", left) if fits else (text, left + 1)
    return text + (f"{left} more did not fit; the job's log has all.\n" if left else "")


def _word(said: Said) -> str:
    return "ok" if said.well else "**failed**"


def _folded(finding: Finding) -> str:
    name = shown(finding.path)[1:-1]
    drawing = fenced(finding.drawing, "mermaid")
    said = fenced(f"{finding.check.text}\n\n{finding.play.text}")
    return f"<details><summary><code>{name}</code></summary>\n\n{drawing}\n{said}\n</details>\n"


def gh(*arguments: str, body: Any = None) -> str:
    """Call the forge by its own client. Raises CalledProcessError, OSError."""
    given = ("--input", "-") if body is not None else ()
    said = json.dumps(body) if body is not None else None
    ended = subprocess.run(
        ["gh", "api", *arguments, *given], input=said, capture_output=True, text=True, timeout=60, check=True
    )
    return ended.stdout


def comment(text: str, repository: str, number: int) -> None:
    """Write the pull request's comment; the one of an earlier run is replaced. Raises CalledProcessError, OSError."""
    mine = f'.[] | select(.user.type == "Bot") | select(.body | startswith("{MARK}")) | .id'
    listed = gh(f"repos/{repository}/issues/{number}/comments", "--paginate", "--jq", mine).split()
    if listed:
        gh(f"repos/{repository}/issues/comments/{int(listed[0])}", "--method", "PATCH", body={"body": text})
    else:
        gh(f"repos/{repository}/issues/{number}/comments", "--method", "POST", body={"body": text})


def pull_request() -> int:
    """Give the number of the pull request that this job is about, 0 for none."""
    try:
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
        return int(event["pull_request"]["number"])
    except (KeyError, TypeError, ValueError, OSError):
        return 0


def tell(text: str) -> None:
    """Comment on the pull request; without one, or where that is not allowed, write to the job's summary."""
    number, wanted = pull_request(), os.environ.get("LOOM_COMMENT", "true") == "true"
    if number and wanted:
        try:
            comment(text, os.environ["GITHUB_REPOSITORY"], number)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            why = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
            print(f"Loom: not commented, but written to the summary: {' '.join(why)[:300]}")
        else:
            return
    with open(
        os.environ.get("GITHUB_STEP_SUMMARY") or os.devnull, "a", encoding="utf-8", errors="backslashreplace"
    ) as summary:
        summary.write(text)


def main() -> int:
    """Look at the workflows, tell what was found, and give 1 if something is wrong."""
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    findings = [examine(path, os.environ.get("LOOM_OUTCOMES", "")) for path in chosen(os.environ["LOOM_WORKFLOWS"])]
    log = loomctl("prove", "--log", "--all") if glob.glob(".loom/runs/*/state.json") else None
    stop = secrets.token_hex(16)  # what follows is a stranger's text: no line of it is a command to the runner
    print(f"::stop-commands::{stop}")
    for one in findings:
        print(f"{one.path!r}\n{one.check.text}\n{one.play.text}\n")
    print(log.text if log is not None else "This repository has no runs.")
    tell(markdown(findings, log))
    print(f"::{stop}::")
    well = all(one.check.well and one.play.well for one in findings) and (log is None or log.well)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
