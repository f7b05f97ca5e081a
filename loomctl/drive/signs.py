"""What a driver sees of an assistant's process: one line of its output, as its host's dialect reads it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Call(NamedTuple):
    """A tool is called.

    what: the tool and what it was given, in a line; key: the same for the same call; rules: settings that allow
    it together.
    """

    id: str
    what: str
    key: str
    rules: tuple[str, ...] = ()


class Result(NamedTuple):
    """A call has ended. key: the same for the same result."""

    id: str
    key: str


class Denied(NamedTuple):
    """A call was refused by the host's own permissions. id, what, rules: the call's, as `Call` has them."""

    id: str
    what: str
    rules: tuple[str, ...] = ()


class Retry(NamedTuple):
    """The model's API refused, and the host asks again by itself.

    after: seconds; until: since 1970, 0 if not told; number: how many times it has asked again.
    """

    status: int
    after: float
    until: float = 0
    number: int = 0


class Used(NamedTuple):
    """Tokens of one answer, of which a host may tell more than once (id); sizes: as the host names them.

    For an estimate of what it costs, in input tokens of its model: weight, of what is told, and more, of what was said
    in this part of it.
    """

    id: str
    model: str
    sizes: Mapping[str, int]
    weight: float = 0.0
    more: float = 0.0


def conversation(name: object) -> str:
    """Give a conversation's id, which will stand on a command line; empty for what could be taken for an option."""
    return name[:100] if isinstance(name, str) and name[:1].isalnum() and name.isprintable() else ""


class Said(NamedTuple):
    """Words of the assistant's."""

    text: str


class Began(NamedTuple):
    """The conversation's id."""

    session_id: str


class Over(NamedTuple):
    """The assistant's own account of how its turn ended.

    cost: USD of the conversation as a whole, spent: of this process alone, None where that is not told; prices: by
    model, USD of one of the tokens that `Used` weighs in; status: of the API, where it refused; reason: the host's word
    for the end, such as `budget`, `turns`, `api`, `interrupted`, `error`, `done`; denied: what was refused, again;
    sums: whether the tokens are the conversation's, too.
    """

    is_error: bool
    reason: str
    text: str = ""
    cost: float | None = None
    spent: float | None = None
    prices: Mapping[str, float] = {}
    status: int = 0
    until: float = 0
    tokens: int = 0
    denied: tuple[Denied, ...] = ()
    sums: bool = False


Sign = Call | Result | Denied | Retry | Used | Said | Began | Over
