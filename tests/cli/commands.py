"""Runs of command steps, and what they left, for the tests of `loomctl next`."""

import json
import subprocess
import sys

from loomctl.kit.errors import EXIT_OK
from loomctl.runs import command_runs
from tests.helpers.scenes import MAIN, Json, Scene
from tests.helpers.waiting import until

AT_ONCE, PATIENT = "0", "60"


def steps(*commands: str | Json, after: bool = True) -> Json:
    """Give a phase of command steps, and a step for the assistant behind them."""
    made: list[Json] = [
        {"id": f"c{number}", **({"run": one} if isinstance(one, str) else one)}
        for number, one in enumerate(commands, 1)
    ]
    return {"build": {"steps": [*made, *([{"id": "then", "prompt": "Go on."}] if after else [])]}}


def begin(scene: Scene, *commands: str | Json, trusted: bool = True) -> str:
    """Start a run of command steps, and trust it; gives its id."""
    scene.workflow(phases=steps(*commands))
    run_id = scene.begin().run.run_id
    if trusted:
        assert scene.loomctl("trust", "--yes").code == EXIT_OK
    return run_id


def status(scene: Scene, stage: str) -> Json:
    found: Json = json.loads((scene.run_dir / "stages" / stage / "status.json").read_text(encoding="utf-8"))
    return found


def blob(scene: Scene, ref: str) -> object:
    sha256 = ref.rpartition("/")[2]
    return json.loads((scene.store / "blobs" / "sha256" / sha256[:2] / sha256).read_bytes())


def record(scene: Scene, stage: str) -> Json:
    """Read who runs a stage's command, once its number is known."""
    path = scene.run_dir / "stages" / stage / command_runs.RECORD
    until(lambda: path.exists() and json.loads(path.read_text(encoding="utf-8"))["command"])
    found: Json = json.loads(path.read_text(encoding="utf-8"))
    return found


def next_beside(scene: Scene, **environ: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", str(MAIN), "next", "--json"], cwd=scene.root, env={**scene.environ(), **environ},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
