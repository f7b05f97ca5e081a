"""Make a release's recorded project anew: its runs, its remote, its user's folder, by that release's own commands.

    python tests/upgrade/make.py RELEASE COMMIT [PYTHON]

exports the commit, runs it with PYTHON (by default this one; it needs what that release's requirements.lock says), and
writes `tests/upgrade/releases/RELEASE/project.tar.xz` and `release.json`. Everything is made in /srv/loom, so that no
record names the machine: that folder must not be there, and it must be possible to make it.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
RELEASES = Path(__file__).resolve().parent / "releases"
PLACE = Path("/srv/loom")
SHOP, HOME, REMOTE, SOURCE = PLACE / "shop", PLACE / "home", PLACE / "remote.git", PLACE / "loom"
ANSWER = "It is made, and the tests pass."
AT = "2026-11-25T05:00:00Z"
PNG = r"\211PNG\r\n\032\n" + "0" * 64
WORKFLOWS: dict[str, Any] = {
    "feature": {
        "autonomy": {"level": "guarded"},
        "must_survive": ["Ada signs off the colours", "$.context.budget"],
        "critical_artifacts": {
            "always_load": [
                {
                    "id": "specification",
                    "type": "markdown",
                    "path": "specs/dark-mode.md",
                    "description": "what is wanted",
                    "required": True,
                    "reload_triggers": ["session_start"],
                }
            ]
        },
        "phases": {
            "frame": {"steps": [{"id": "ask", "prompt": "Ask what is wanted."}]},
            "build": {"steps": [{"id": "make", "prompt": "Make it."}, {"id": "polish", "prompt": "Polish it."}]},
            "ship": {"steps": [{"id": "send", "prompt": "Send it."}]},
        },
    },
    "asked": {
        "phases": {
            "build": {
                "steps": [
                    {"id": "make", "prompt": "Write hello.txt with one line in it."},
                    {
                        "id": "gate",
                        "kind": "human",
                        "prompt": "Is hello.txt good enough to ship?",
                        "transitions": [{"to": "end", "label": "[A] Approve"}, {"to": "fix", "label": "[F] Fix"}],
                    },
                    {"id": "fix", "prompt": "Mend what was found.", "transitions": [{"to": "gate"}]},
                ]
            }
        }
    },
    "checked": {
        "phases": {
            "build": {
                "steps": [
                    {"id": "make", "prompt": "Write out/notes.md.", "evidence": ["out/notes.md"]},
                    {
                        "id": "test",
                        "run": f"mkdir -p test-results && printf '{PNG}' > test-results/shot.png && cat out/notes.md",
                        "timeout": 60,
                    },
                    {"id": "tell", "prompt": "Tell what came out of the tests."},
                ]
            }
        }
    },
    "two-sides": {
        "phases": {
            "build": {
                "steps": [
                    {
                        "id": "explore",
                        "prompt": "Look at the checkout from two sides.",
                        "parallel": {
                            "join": "wait_all",
                            "branches": [
                                {"id": "api", "steps": [{"id": "look", "prompt": "Read the endpoints."}]},
                                {"id": "web", "steps": [{"id": "look", "prompt": "Read the pages."}]},
                            ],
                        },
                    },
                    {"id": "plan", "prompt": "Make a plan of what was found."},
                ]
            }
        }
    },
    "reviewed": {
        "retry_target": "build/make",
        "phases": {
            "build": {
                "steps": [
                    {"id": "make", "prompt": "Write hello.txt with one line in it."},
                    {
                        "id": "review",
                        "prompt": "Is it one line, and friendly?",
                        "output_schema": "routing",
                        "max_visits": 60,
                        "transitions": [
                            {"to": "fix", "label": "[F] Fix", "fidelity": "summary:low"},
                            {"to": "end", "condition": "outcome == 'succeeded' && context.score >= 8"},
                        ],
                    },
                    {
                        "id": "fix",
                        "prompt": "Mend what the review found.",
                        "max_visits": 60,
                        "transitions": [{"to": "review"}],
                    },
                ]
            }
        },
    },
}
FILES = {
    "README.md": "# Shop\n\nSells things.\n",
    "specs/dark-mode.md": "# Dark mode\n\nEvery page has a dark side; the user's choice is kept.\n",
    ".gitignore": ".loom/*\n!.loom/workflows\n",
}


class Maker:
    """Runs the commands of a release in the project that is to be recorded."""

    def __init__(self, python: str) -> None:
        self._python = [python, "-P"] if sys.version_info >= (3, 11) else [python]
        self._environ = {
            "PATH": os.defpath,
            "HOME": str(HOME),
            "LANG": "C.UTF-8",
            "LOOM_HOSTNAME": "desk",
            "PYTHONPATH": str(SOURCE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LOOM_PYTHON": python,
            "GIT_AUTHOR_DATE": AT,
            "GIT_COMMITTER_DATE": AT,
        }
        self.runs: dict[str, dict[str, Any]] = {}

    def git(self, *words: str, at: Path = SHOP) -> None:
        subprocess.run(["git", *words], cwd=at, env=self._environ, check=True, capture_output=True)

    def loomctl(self, *words: str, given: str | None = None, session: str = "", code: int = 0) -> str:
        """Run a command as its user, or in a session of an assistant. code: how it has to end."""
        done = subprocess.run(
            [*self._python, "-m", "loomctl", *words],
            cwd=SHOP,
            env={**self._environ, **({"CLAUDE_CODE_SESSION_ID": session} if session else {})},
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != code:
            sys.exit(f"loomctl {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def hook(self, event: str, session: str, **told: Any) -> None:
        """Fire an event as an assistant does, by the launcher, which keeps tool calls by itself."""
        name = "".join(word.capitalize() for word in event.split("-"))
        body = {"session_id": session, "cwd": str(SHOP), "transcript_path": "", "hook_event_name": name, **told}
        subprocess.run(
            ["/bin/sh", str(SOURCE / "bin/loomctl"), "hook", event],
            cwd=SHOP,
            env={
                **self._environ,
                "CLAUDE_CODE_SESSION_ID": session,
                "CLAUDE_PROJECT_DIR": str(SHOP),
                "CLAUDE_PLUGIN_ROOT": str(SOURCE),
            },
            input=json.dumps(body),
            capture_output=True,
            text=True,
            check=True,
        )

    def begin(self, name: str, work: str, workflow: str, covers: str, *, session: str = "") -> str:
        """Start a run and record it under a name; gives its id."""
        told = json.loads(self.loomctl("run", work, "--workflow", workflow, "--json", session=session))
        self.runs[name] = {"run_id": told["run_id"], "covers": covers}
        return str(told["run_id"])

    def done(self, run: str, *words: str, said: str = ANSWER, code: int = 0, session: str = "") -> None:
        self.loomctl("done", run, *words, given=said, code=code, session=session)


def session(number: int) -> str:
    return f"5f0c9a52-0000-4000-8000-{number:012d}"


def set_up(maker: Maker) -> None:
    for folder in (SHOP, HOME, REMOTE):
        folder.mkdir(parents=True)
    (HOME / ".gitconfig").write_text(
        "[user]\n\tname = Ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n", encoding="utf-8"
    )
    maker.git("init", "--quiet", "--bare", at=REMOTE)
    maker.git("init", "--quiet")
    for name, raw in WORKFLOWS.items():
        FILES[f".loom/workflows/{name}.json"] = json.dumps({"id": name, **raw}, indent=2) + "\n"
    for path, text in FILES.items():
        (SHOP / path).parent.mkdir(parents=True, exist_ok=True)
        (SHOP / path).write_text(text, encoding="utf-8")
    maker.git("add", "--all")
    maker.git("commit", "--quiet", "--message", "Begin the shop")
    maker.git("remote", "add", "origin", "../remote.git")
    maker.git("push", "--quiet", "origin", "main")


def under_way(maker: Maker) -> None:
    """One run with all that hooks write: two sessions, tool calls, a compaction with receipts, a large value."""
    first, second = session(1), session(2)
    maker.hook("session-start", first, source="startup", model="sonnet")
    covers = "in the middle of a workflow; sessions, tool calls, a compaction, a large value, a registered artifact"
    run = maker.begin("under-way", "add dark mode", "feature", covers, session=first)
    maker.hook("user-prompt-submit", first, prompt="/loom:run add dark mode")
    for number in range(6):
        command = {"command": f"grep -rn colour part-{number}"}
        given = {"stdout": "".join(f"part-{number}/page-{n}.css:{n}: colour: #{n:06x}\n" for n in range(60))}
        call = {"tool_name": "Bash", "tool_input": command, "tool_use_id": f"toolu_{number}"}
        maker.hook("pre-tool-use", first, **call)
        maker.hook("post-tool-use", first, **call, tool_response={**given, "stderr": "", "interrupted": False})
    large = {"colours": [f"#{number % 9:06x}" for number in range(15_000)]}
    said = "The pages are known. " + json.dumps({"context_updates": {"budget": "3 days", "palette": large}})
    (SHOP / "pages.md").write_text("# Pages\n\nBasket, search, order.\n", encoding="utf-8")
    maker.done(run, "--artifact", "pages=pages.md", said=said, session=first)
    maker.hook("pre-compact", first, trigger="auto", custom_instructions="")
    maker.hook("session-start", first, source="compact")
    maker.hook("post-compact", first, trigger="auto", compact_summary="Ada signs off the colours. Pages were read.")
    maker.hook("user-prompt-submit", first, prompt="go on")
    maker.hook("session-end", first, reason="logout")
    maker.hook("session-start", second, source="startup", model="sonnet")
    maker.loomctl("resume", run, session=second)
    maker.hook("stop", second, stop_hook_active=False, last_assistant_message="Which blue is it to be?")
    maker.hook("session-end", second, reason="logout")
    forked = json.loads(maker.loomctl("fork", run, "--at", "ask", "--json"))
    maker.runs["forked"] = {"run_id": forked["run_id"], "covers": "made of another run, and gone on"}
    maker.loomctl("resume", forked["run_id"])
    maker.done(forked["run_id"])


def ends(maker: Maker) -> None:
    """Runs that are over, each in its way."""
    run = maker.begin("completed", "say hello", "checked", "completed; a trusted command, evidence, an asset")
    (SHOP / "out").mkdir()
    (SHOP / "out/notes.md").write_text("Hello is said.\n", encoding="utf-8")
    maker.done(run)
    maker.loomctl("trust", run, "--yes")
    maker.loomctl("next", run)
    maker.done(run)
    run = maker.begin("failed", "mend the search", "feature", "failed")
    maker.done(run)
    maker.done(run, "--outcome", "failed", "--note", "the tests need a database", said="No database is here.")
    run = maker.begin("cancelled", "paint it red", "feature", "cancelled")
    maker.done(run)
    maker.loomctl("cancel", run)
    run = maker.begin("archived", "sort the shelves", "feature", "completed, with a large value, in an archive")
    for number in range(4):
        told = {"context_updates": {"shelves": "x" * 110_000}} if number == 1 else {}
        maker.done(run, said=f"{ANSWER} {json.dumps(told)}")
    maker.loomctl("runs", "archive", run)


def waits(maker: Maker) -> None:
    """Runs that wait for somebody."""
    run = maker.begin("asked", "greet the user", "asked", "waits for a person's decision")
    maker.done(run)
    run = maker.begin("untrusted", "check the notes", "checked", "waits for trust in a command")
    (SHOP / "out/notes.md").write_text("The notes are checked.\n", encoding="utf-8")
    maker.done(run)
    maker.loomctl("next", run, code=2)
    run = maker.begin("paused", "count the pages", "feature", "paused")
    maker.done(run)
    maker.loomctl("pause", run)


def ways(maker: Maker) -> None:
    """Runs whose way is no straight one."""
    run = maker.begin("parallel", "a faster checkout", "two-sides", "an open parallel step, one branch of two ended")
    maker.loomctl("next", run, "--branch", "api")
    maker.done(run, "--branch", "api", said='POST /orders alone. {"context_updates": {"endpoints": 1}}')
    maker.loomctl("next", run, "--branch", "web")
    run = maker.begin("rewound", "add a basket", "feature", "rewound and undone")
    maker.done(run, said='Known. {"context_updates": {"size": 1}}')
    maker.done(run, said='Made. {"context_updates": {"size": 2}}')
    maker.done(run)
    maker.loomctl("rewind", run, "--to", "make")
    maker.done(run, said='Made again. {"context_updates": {"size": 3}}')
    maker.loomctl("undo", run)
    run = maker.begin("long", "polish the greeting", "reviewed", "seventy visits in a loop")
    maker.done(run)
    for number in range(34):
        maker.done(run, said=json.dumps({"preferred_next_label": "fix", "context_updates": {"score": number % 7}}))
        maker.done(run, said=f"Mended for the {number + 1}. time.")


def push(maker: Maker) -> None:
    """Put runs on the remote, one of them again after it went on."""
    for name in ("under-way", "forked", "completed", "failed", "asked", "parallel", "rewound", "long"):
        maker.loomctl("push", maker.runs[name]["run_id"], "--yes")
        maker.runs[name]["pushed"] = True
    run = maker.runs["forked"]["run_id"]
    maker.done(run)
    maker.loomctl("push", run, "--with-outputs", "--yes")


def pack(folder: Path) -> bytes:
    """Pack a folder so that the same files are the same bytes: sorted, of nobody, at one time."""

    def neutral(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = 1_764_046_800
        return entry

    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, str(path.relative_to(folder)), recursive=False, filter=neutral)
    return lzma.compress(made.getvalue(), preset=9)


def tidy() -> None:
    """Leave out the release itself, of repositories what each git makes by itself, of the home what a cache holds."""
    shutil.rmtree(SOURCE)
    for repository in (SHOP / ".git", REMOTE):
        plain = (
            "-c",
            "core.compression=0",
            "-c",
            "pack.compression=0",
        )  # what packs hold twice, the archive holds once
        subprocess.run(["git", *plain, "repack", "-a", "-d", "-F", "-q"], cwd=repository, check=True)
        for name in ("hooks", "logs", "info/exclude", "description", "COMMIT_EDITMSG"):
            path = repository / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    shutil.rmtree(HOME / ".cache", ignore_errors=True)


def main(release: str, commit: str, python: str = sys.executable) -> None:
    if PLACE.exists():
        sys.exit(f"{PLACE} is there; remove it")
    commit = subprocess.check_output(["git", "rev-parse", f"{commit}^{{commit}}"], cwd=CHECKOUT, text=True).strip()
    source = subprocess.check_output(["git", "archive", commit], cwd=CHECKOUT)
    try:
        SOURCE.mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(source)) as archive:
            archive.extractall(SOURCE, filter="data")
        maker = Maker(python)
        set_up(maker)
        for scene in (under_way, ends, waits, ways, push):
            scene(maker)
        schema = 0
        for known in maker.runs.values():
            path = SHOP / ".loom/runs" / known["run_id"] / "state.json"
            state = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            known["status"], schema = state.get("status"), max(schema, state.get("schema_version", 0))
        tidy()
        packed = pack(PLACE)
    finally:
        shutil.rmtree(PLACE, ignore_errors=True)
    folder = RELEASES / release
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "project.tar.xz").write_bytes(packed)
    told = {"release": release, "commit": commit, "schema_version": schema, "runs": maker.runs}
    (folder / "release.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
