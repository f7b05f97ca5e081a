"""How much of the past a preamble carries, and who decides that (D46)."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

FIDELITIES = ("full", "truncate", "compact", "summary:low", "summary:medium", "summary:high")
DEFAULT = "compact"
AFTER_RESUME = "summary:high"  # what `full` becomes in a conversation that has not seen the work


class Chosen(NamedTuple):
    """source: who named it: `transition`, `step`, `workflow`, or `default`; warnings: what was named and is none."""

    fidelity: str
    source: str
    warnings: Sequence[str] = ()


def chosen(*, transition: object = None, step: object = None, workflow: object = None) -> Chosen:
    """Choose the fidelity: the transition's, the step's, the workflow's, else `compact`. None: it names none.

    What is no fidelity is warned of and passed over, for a run is not held up by it (a check before it refuses it).
    """
    warnings: list[str] = []
    for source, named in (("transition", transition), ("step", step), ("workflow", workflow)):
        if named is None:
            continue
        if isinstance(named, str) and named in FIDELITIES:
            return Chosen(named, source, tuple(warnings))
        warnings.append(f"{masked_line(str(named), 60)!r} of the {source} is no fidelity; it is passed over")
    return Chosen(DEFAULT, "default", tuple(warnings))
