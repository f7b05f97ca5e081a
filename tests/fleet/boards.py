"""A fleet in which something of every kind stands, to be looked at."""

from __future__ import annotations

from loomctl.fleet import runs
from loomctl.fleet.here import Here
from loomctl.fleet.model import CANCELLED, DONE, FAILED, PAUSED, QUEUED, WAITS, Lane, Limits, Progress, Row
from loomctl.fleet.port import Queue, Worker
from tests.helpers.scenes import Scene

ANY = Limits(each=None)
WORKERS = (Worker("alpha-1", "alpha", 4), Worker("beta-1", "beta", 2))
# Markup, a script's end, a terminal's colours and title, what turns text around, a template's, a secret, and length.
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
HOSTILE = (
    "</script></style><img src=x onerror=window.hit=1><b>\x1b[31m\x1b]0;owned\x07\u202eevil\r\nhit\t{{ 7*7 }}{% raw %}"
    f" {SECRET} "
)
LONG = HOSTILE + "x" * (1 << 20)


def fleet(scene: Scene) -> Here:
    """Open the queue of a scene's project."""
    space = scene.space()
    return Here(space, runs.repository_of(space))


def row(queue: Here, name: str, workflow: str = "core", host: str = "claude-code", **more: object) -> Row:
    """Give a run that is queued, but for what is said otherwise."""
    lane = Lane(queue._repository, host, workflow)
    made = Row(f"{name}-run-1", name, f"do {name}", lane, 1, QUEUED, step="build/implement")
    return made._replace(**more)  # type: ignore[arg-type]


def driven(queue: Queue, worker: Worker, number: int = 1) -> list[Row]:
    """Let a worker take runs, and sign for them."""
    queue.sign(worker, [])
    taken = [one for _ in range(number) if (one := queue.claim(worker, ANY)) is not None]
    queue.sign(worker, [Progress(one.run_id, one.attempt, 0.5, "build/test") for one in taken])
    return taken


def failing(queue: Here, names: list[str], why: str, workflow: str = "core", kind: str = "infra") -> None:
    """Let runs fail, one after the other, all for the same cause."""
    worker = Worker("omega-1", "omega", 1)
    for name in names:
        queue.pause(workflow, "")
        queue.offer([row(queue, name, workflow)])
        (taken,) = driven(queue, worker)
        queue.settle(worker, taken._replace(state=FAILED, kind=kind, why=why.replace("NAME", name)))
    queue.leave(worker)


def every_kind(queue: Here, say: str = "Approve the plan?") -> None:
    """Put runs of every kind in. say: what somebody else wrote, wherever there is such a text."""
    queue.clear()
    now = queue.clock()
    failing(queue, ["f-1", "f-2", "f-3"], f"npm ci exited with 1: /home/NAME/x {say}")
    failing(queue, ["f-4"], say, "docs", "crash")
    queue.offer([row(queue, name, "docs", goal=say, step=say) for name in ("a-1", "a-2", "a-3")])
    driven(queue, WORKERS[0], 2)
    driven(queue, WORKERS[1], 1)
    queue.offer(
        [
            row(queue, "q-1", "docs", priority=1, goal=say),
            row(queue, "q-2", "core", goal=say),
            row(queue, "l-1", not_before=now + 7200, why=say),
            row(queue, "n-1", after=("f-4-run-1",)),
            row(queue, "n-2", after=("a-1-run-1", "a-2-run-1", "a-3-run-1")),
            row(queue, "n-3", after=("nowhere-run-1",)),
            row(queue, "w-1", state=WAITS, kind="approval", why=say, command="loomctl approve w-1", since=now - 60),
            row(queue, "w-2", state=WAITS, kind="trust", why=say, command="loomctl trust w-2", since=now - 7200),
            row(queue, "p-1", state=PAUSED, command="loomctl fleet resume p-1"),
            *[row(queue, f"d-{number}", state=DONE, cost=1.25) for number in range(4)],
            row(queue, "c-1", state=CANCELLED),
        ]
    )
    queue.hold("codex", now + 900, say)
