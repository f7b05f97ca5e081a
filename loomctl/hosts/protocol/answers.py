"""What a hook's event is answered, and the form in which a host takes that."""

from __future__ import annotations

from loomctl.hosts import table
from loomctl.kit import quick_json
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from loomctl.hosts.table import Host


class Answer(NamedTuple):
    """What an event is answered; each field may be empty.

    event: its name as the protocol has it; text: for the assistant; line: for its user; goes_on: the words with which
    the turn goes on; decision, why: on a tool's call, `allow` or `ask`; output: what stands in place of a tool's.
    """

    event: str
    text: str = ""
    line: str = ""
    goes_on: str = ""
    decision: str = ""
    why: str = ""
    output: Any = None


def written(answer: Answer, host: Host | None = None) -> str:
    """Give an answer as the host that asks takes it; empty where nothing is said.

    host: the one that is answered where no hook asks.
    """
    host = host or table.of_hook()
    answer = answer._replace(line=for_people(answer.line) if answer.line else "")
    return str(table.dialect(host).write(answer)) if host.dialect else plain(answer)


def plain(answer: Answer) -> str:
    """Give an answer in the protocol's own form; empty where nothing is said."""
    own: dict[str, Any] = {}
    if answer.decision:
        own |= {"permissionDecision": answer.decision, "permissionDecisionReason": answer.why}
    if answer.output is not None:
        own["updatedToolOutput"] = answer.output
    if answer.text:
        own["additionalContext"] = answer.text
    told: dict[str, Any] = {"decision": "block", "reason": answer.goes_on} if answer.goes_on else {}
    if own:
        told["hookSpecificOutput"] = {"hookEventName": answer.event, **own}
    if answer.line:
        told["systemMessage"] = answer.line
    return quick_json.plain(told) if told else ""


def for_people(line: str) -> str:
    """Give a line as a user is shown it: masked, and begun with Loom's name."""
    from loomctl.kit.text.fences import visible
    from loomctl.kit.text.secrets import mask

    return visible(mask(line if line.startswith("Loom") else f"Loom: {line}")[0])
