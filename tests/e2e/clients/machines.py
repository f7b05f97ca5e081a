"""One machine an assistant, on which Loom has just been installed: made once, and come back to by each test."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TypeVar, cast

from tests.e2e.clients.client import Client

Kind = TypeVar("Kind", bound=Client)


class Machines:
    """The machines of a run of tests; they go when the `with` block ends."""

    def __init__(self, bundle: Path, cache: Path) -> None:
        self._bundle, self._cache = bundle, cache
        self._made: dict[type[Client], Client] = {}
        self._all_of_them = ExitStack()

    def __enter__(self) -> Machines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._all_of_them.close()

    def of(self, kind: type[Kind]) -> Kind:
        """Give an assistant as it was after its installation, at the same paths each time."""
        if kind not in self._made:
            made = self._all_of_them.enter_context(kind(self._bundle, self._cache))
            made.keep("installed")
            self._made[kind] = made
        self._made[kind].come_back("installed")
        return cast("Kind", self._made[kind])
