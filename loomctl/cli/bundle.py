"""`loomctl install`, `schema`, `hook`, `doctor` and `demo`: what belongs to this installation, and no run."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from loomctl.cli import output
from loomctl.cli.command_line import json_option
from loomctl.hosts import asking, table
from loomctl.install import on_path
from loomctl.install.on_path import Placed
from loomctl.kit import clock, files, machine, package
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SETUP, LoomError, quoted
from loomctl.runs import project

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = ("workflow", "plan", "state", "tool_step", "status", "changes", "report")


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@json_option
def schema(kind: str, as_json: bool) -> int:
    """Print the JSON Schema of a kind of file, for editors.

    The kinds are workflow, plan and state; tool_step, a recorded tool call; status and changes, which say how a step
    ended and what it touched; and report, the document of `loomctl report --json`.

    \b
    Examples:
      loomctl debug schema workflow > workflow.schema.json
      loomctl debug schema status
    """
    name = os.path.join(project.plugin_root(), "config", f"{kind}.schema.json")
    if as_json:
        output.document({"kind": kind, "schema": files.read_json(name)})
    else:
        click.echo(files.read_bytes(name).decode(), nl=False)
    return EXIT_OK


@click.command()
@click.option(
    "--host", type=click.Choice(list(table.HOSTS)), default=table.CLAUDE.name, help="The assistant that asks."
)
@click.argument("event")
def hook(host: str, event: str) -> int:
    """Answer an assistant's hook EVENT (JSON on standard input).

    The files in hooks/ call this; people do not need it.

    \b
    Events: session-start, user-prompt-submit, pre-tool-use, pre-compact, stop, session-end. The launcher answers
    post-tool-use and post-tool-use-failure itself, and calls Python only for large outputs.
    """
    from loomctl.hosts.protocol.hooks import main

    os.environ[asking.NAMED] = host
    return main([event])


@click.command()
@json_option
def doctor(as_json: bool) -> int:
    """Check this installation and say how to fix it.

    Each check ends with PASS, WARN or FAIL. It changes nothing. Exit code 1 if a check fails. docs/reference/doctor.md
    explains the checks.

    \b
    Examples:
      loomctl doctor
      loomctl doctor --json
    """
    from loomctl.cli.doctor import tell

    return tell(as_json=as_json)


SPEC = """# Dark mode for the shop

## Goal
A visitor can switch the shop to dark colours, and the choice survives a reload. Nothing changes for those who never
touch the switch.

## Decisions
- Colours come from CSS variables on `:root`; the dark ones stand under `:root[data-theme=dark]`. A second stylesheet
  was rejected: it would double what is loaded and drift from the first.
- The choice is kept in the browser under the key `shop.theme`, and the contrast ratio is at least 7:1.
- Without a choice the system's setting counts (`prefers-color-scheme`), read once at load.
- Pictures are not inverted. Logos with a light edge get a frame of `--surface`.

## Failures
Storage may be forbidden (private windows): the switch then works until the page is left, and says nothing.

## Acceptance
1. The switch in the header changes the colours at once: `theme.test.ts`, by hand in two browsers.
2. After a reload the choice is as it was left: `theme.test.ts`.
3. Every pair of text and background meets the ratio: `contrast.test.ts` reads the variables.
4. The switch can be reached and used with the keyboard alone.

## Tasks
- [ ] `src/theme.ts`: read and write the choice, set the attribute before the first paint.
- [ ] `styles/variables.css`: both sets of colours; no other file names a colour afterwards.
- [ ] `src/header.ts`: the switch, a button with `aria-pressed`.
- [ ] `tests/contrast.test.ts`: every pair of text and background.
"""
SENTENCE = "the contrast ratio is at least 7:1"
RESULT = "The goal, the decisions and the acceptance criteria are written down; nothing is open."


class Machine:
    """One of the two simulated machines: a name, a state folder and a copy of the project of its own."""

    def __init__(self, name: str, project: str, base: str) -> None:
        self.name, self.project = name, project
        self._state = os.path.join(base, f"state-of-{name}")

    def _surroundings(self, session: str) -> dict[str, str]:
        kept = {key: value for key, value in table.without_hosts(os.environ).items() if not key.startswith("LOOM_")}
        own = {"LOOM_HOSTNAME": self.name, "LOOM_STATE_HOME": self._state, table.CLAUDE.project: self.project}
        return {**kept, **own, table.CLAUDE.session: session, "PWD": self.project}

    def _call(self, session: str, words: Sequence[str], given: str) -> Any:
        import subprocess

        return subprocess.run(
            [sys.executable, "-I", package.MAIN, *words],
            cwd=self.project,
            env=self._surroundings(session),
            input=given,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )

    def loomctl(self, session: str, *arguments: str, given: str = "") -> dict[str, Any]:
        """Run a command as the session's assistant would; gives its JSON document."""
        done = self._call(session, [*arguments, "--json"], given)
        document: dict[str, Any] = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        if done.returncode != EXIT_OK:
            told = json.dumps(document.get("error")) if document else done.stderr
            what = f"loomctl {' '.join(arguments)} ended with {done.returncode}"
            raise LoomError("DEMO_FAILED", what, where=self.project, why=told[:600], hint="loomctl demo --keep")
        return document

    def hook(self, session: str, event: str, **told: str) -> dict[str, Any]:
        """Send a host's hook event; gives what the hook answers."""
        body = {"session_id": session, "cwd": self.project, "transcript_path": "", "hook_event_name": event, **told}
        done = self._call(session, ["hook", event], json.dumps(body))
        answer: dict[str, Any] = json.loads(done.stdout) if done.stdout.startswith("{") else {"text": done.stdout}
        return answer


@click.command()
@click.option("--keep", is_flag=True, help="Keep the folder so that you can look at it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of the play.")
def demo(keep: bool, as_json: bool) -> int:
    """Try Loom without an assistant, on real files.

    It plays a run, the end of its session, a move to another machine and a compaction. It works in a temporary folder,
    touches nothing of yours, and needs no network.

    \b
    Examples:
      loomctl demo
      loomctl demo --keep
    """
    import shutil
    import tempfile

    if shutil.which("git") is None:
        raise LoomError(
            "NO_GIT", "the demo needs git, and git is not installed", hint="git --version", exit_code=EXIT_SETUP
        )
    base = os.path.realpath(tempfile.mkdtemp(prefix="loom-demo-"))
    began = time.monotonic()
    say = _silent if as_json else output.text
    try:
        facts = _play(base, say)
    finally:
        if not keep:
            shutil.rmtree(base, ignore_errors=True)
    facts["seconds"] = round(time.monotonic() - began, 2)
    facts["folder"] = base if keep else None
    survived = bool(facts["spec_after_resume"] and facts["spec_after_compaction"])
    if as_json:
        output.document({"survived": survived, **facts})
    else:
        say("")
        say("Everything that mattered survived." if survived else "Something was lost: please report it.", style="bold")
        say(
            f"It took {facts['seconds']} s. "
            + (f"The folder is {base}" if keep else "The demo removed its folder; --keep leaves it.")
        )
    return EXIT_OK if survived else EXIT_FINDINGS


def _play(base: str, say: Any) -> dict[str, Any]:
    a = Machine("machine-a", os.path.join(base, "laptop", "shop"), base)
    b = Machine("machine-b", os.path.join(base, "desktop", "work", "shop"), base)
    say("Loom's demo. The files, the git project and the hooks' answers are real. It simulates")
    say("two machines on this one: LOOM_HOSTNAME gives each a name, and LOOM_STATE_HOME a")
    say("state folder of its own.")
    _heading(say, "1. machine-a: start a run of the core workflow")
    _project(a.project)
    begun = a.loomctl("session-one", "run", "add dark mode", "--workflow", "core")
    run_id = begun["run_id"]
    say(f'   $ loomctl run "add dark mode" --workflow core\n   run {begun["handle"]}, first step {begun["step"]["id"]}')
    _slip(say, begun["slip"])
    work = os.path.join(begun["run_dir"], "work.md")
    _write(work, "# Add dark mode\n\nAsked for: a dark colour scheme that a visitor can choose.\n")
    moved = a.loomctl("session-one", "done", given="The work is framed in work.md.")
    say(f"   $ loomctl done   → {moved['next']['id']}")
    _heading(say, "2. machine-a: write the spec, then end the session")
    _write(os.path.join(a.project, "specs", "dark-mode.md"), SPEC)
    moved = a.loomctl("session-one", "done", "--artifact", "spec_path=specs/dark-mode.md", given=RESULT)
    say(
        f"   wrote specs/dark-mode.md, {len(SPEC.encode()):,} bytes\n"
        f"   $ loomctl done --artifact spec_path=specs/dark-mode.md   → {moved['next']['id']}"
    )
    _slip(say, moved["slip"])
    a.hook("session-one", "session-end", reason="prompt_input_exit")
    import shutil

    _heading(say, "3. machine-b: a copy of the project at another path")
    os.makedirs(os.path.dirname(b.project))
    shutil.copytree(a.project, b.project, symlinks=True)
    announced = b.hook("session-two", "session-start", source="startup")
    say(f"   {b.project}\n   {announced.get('systemMessage', '(no announcement)')}")
    taken = b.loomctl("session-two", "resume", run_id)
    say(f"   $ loomctl resume   → {taken['step']['id']}")
    _slip(say, taken["slip"])
    for line in taken["differences"]:
        say(f"   {line}")
    text = b.hook("session-three", "session-start", source="startup").get("systemMessage", "")
    say(f"   a second session on machine-b gets this line: {text}")
    _heading(say, "4. machine-b: a compaction, after which the context comes back by itself")
    given = _compacted(b, say)
    history = b.loomctl("session-two", "sessions", run_id)
    _history(history, say)
    _written(say, b.project, run_id)
    full = {one["id"]: one["form"] for one in taken["slip"]["artifacts"] if one["decision"] == "load"}
    return {
        "run_id": run_id,
        "sessions": history["summary"],
        "spec_after_resume": full.get("specification") == "full",
        "spec_after_compaction": SENTENCE in given,
        "slips": {"run": begun["slip"], "transition": moved["slip"], "resume": taken["slip"]},
    }


def _compacted(machine: Machine, say: Any) -> str:
    told = machine.hook("session-two", "pre-compact", trigger="auto").get("text", "").partition("\n")[0]
    say(f"   the summariser gets this line: {told}")
    restored = machine.hook("session-two", "session-start", source="compact")
    given = str(restored.get("hookSpecificOutput", {}).get("additionalContext", ""))
    say(f"   {restored.get('systemMessage', '(nothing)')}")
    say(f"   the spec's sentence “{SENTENCE}” is {'back in context' if SENTENCE in given else 'LOST'}")
    return given


def _history(history: dict[str, Any], say: Any) -> None:
    say("")
    say(f"   Sessions: {history['summary']}")
    for record in history["sessions"]:
        machine = record["environment"]["hostname"]
        end = record["end_reason"] or "still open"
        end += f", compactions: {len(record['compactions'])}"
        say(f"     {record['session_id']}  {machine}  {clock.ago(record['started_at'])}  {end}")


def _silent(_: str = "", **__: Any) -> None:
    pass


def _heading(say: Any, words: str) -> None:
    say("")
    say(words, style="bold")


def _slip(say: Any, slip: dict[str, Any] | None) -> None:
    if slip is None:
        return
    say(f"   loaded at {slip['event']}, {slip['budget']['used']:,} of {slip['budget']['limit']:,} bytes:")
    for one in slip["artifacts"]:
        if one["decision"] != "skip":
            size = f"{one['bytes']:,} bytes" if one["bytes"] is not None else ""
            say(f"     {one['id']:<24} {one['decision']:<6} {one['form'] or one['reason']:<8} {size}")


def _written(say: Any, project: str, run_id: str) -> None:
    folder = os.path.join(project, ".loom", "runs", run_id)
    say("")
    say(f"   Loom wrote, below .loom/runs/{run_id}:")
    for base, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(base, name)
            say(f"     {os.path.relpath(path, folder)}  {os.path.getsize(path):,} bytes")


def _project(folder: str) -> None:
    os.makedirs(folder)
    _write(os.path.join(folder, "README.md"), "# The shop\n")
    import subprocess

    own = ["-c", "user.name=Demo", "-c", "user.email=demo@example.invalid", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q", "-b", "main"], ["add", "README.md"], ["commit", "-q", "-m", "The shop"]):
        done = subprocess.run(["git", *own, *words], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            why = done.stderr.strip()[:300]
            raise LoomError("DEMO_FAILED", f"git {words[0]} failed", where=folder, why=why, hint="git --version")


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as target:
        target.write(text)


# ---- On PATH.


@click.command("install")
@click.option("--to", "folder", metavar="DIR", help="The folder for it.  [default: ~/.local/bin]")
@click.option("--remove", is_flag=True, help="Remove it again.")
@json_option
def install_command(folder: str | None, remove: bool, as_json: bool) -> int:
    """Put loomctl on your PATH.

    It links ~/.local/bin/loomctl to this bundle's bin/loomctl, so an update of the bundle updates the command. It
    replaces nothing that is not Loom's.

    \b
    Examples:
      ./bin/loomctl install
      loomctl install --remove
    """
    launcher = os.path.join(project.plugin_root(), "bin", on_path.NAME)
    if project.plugin_root() == os.path.join(package.FOLDER, "_bundle") and folder is None and not remove:
        return _tell_of_a_helper(as_json=as_json)
    place = os.path.abspath(os.path.expanduser(folder)) if folder else on_path.default_folder()
    done = on_path.remove(place) if remove else on_path.place(place, launcher)
    told = {**done._asdict(), "on_path": on_path.is_on_path(place), "first": on_path.first()}
    output.answer(told, _removed(done) if remove else _placed(done, place, is_named=bool(folder)), as_json=as_json)
    return EXIT_OK


def _tell_of_a_helper(*, as_json: bool) -> int:
    first = on_path.first()
    told = {**Placed(first or "")._asdict(), "on_path": first is not None, "first": first}
    lines = ["uv or pipx installed this loomctl, and they put it on PATH themselves."]
    lines.append(
        f"It is {first}."
        if first
        else "Their folder is not on your PATH. Run: uv tool update-shell, or pipx ensurepath"
    )
    output.answer(told, lines, as_json=as_json)
    return EXIT_OK


def _removed(done: Placed) -> list[str]:
    homes = (machine.cache_home(), machine.state_home(), machine.config_home())
    kept = ", ".join(dict.fromkeys(home for home in homes if home and os.path.isdir(home)))
    return [
        f"Removed {done.path}." if done.changed else f"There is no {done.path}.",
        *([f"Loom's cache, state and settings stay: {kept}"] if kept else []),
        "The .loom folders in your projects stay too, with their runs. Delete what you no longer need.",
    ]


def _placed(done: Placed, folder: str, *, is_named: bool) -> list[str]:
    word = "a link" if done.kind == on_path.LINK else "a script"
    lines = [f"{done.path} is {word} to {done.target}."]
    if done.before and done.changed:
        lines.append(f"Before, it pointed to {done.before}.")
    first = on_path.first()
    if not on_path.is_on_path(folder):
        lines.append(f"{folder} is not on your PATH. Add it, then open a new terminal:")
        lines.append(f"  {on_path.line_for_shell(folder)}")
    elif first and not on_path.leads_to(first, done.target):
        lines.append(f"But your PATH finds another loomctl first: {first}")
    else:
        lines.append("Now `loomctl --help` works in any folder.")
    return [*lines, "To undo: loomctl install --remove" + (f" --to {quoted(folder)}" if is_named else "")]
