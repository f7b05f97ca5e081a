"""`NamedTuple` without `typing`: the classes are what typing's would be."""

from __future__ import annotations

import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

from loomctl.kit.records import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]


class Ours(NamedTuple):
    """A record."""

    first: int
    second: str = "x"
    third: tuple[str, ...] = ()

    @property
    def both(self) -> str:
        return f"{self.first}{self.second}"

    def larger(self, by: int) -> Ours:
        return self._replace(first=self.first + by)


class Theirs(typing.NamedTuple):
    """A record."""

    first: int
    second: str = "x"
    third: tuple[str, ...] = ()


def test_a_record_is_a_named_tuple() -> None:
    ours: Any = Ours(1, third=("a",))
    theirs: Any = Theirs(1, third=("a",))
    assert ours == theirs == (1, "x", ("a",))
    assert ours._fields == theirs._fields
    assert ours._asdict() == theirs._asdict()
    assert ours._replace(second="y") == theirs._replace(second="y")
    assert hash(ours) == hash(theirs)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert (Ours.__doc__, Ours.__name__, Ours.__qualname__, Ours.__module__) == ("A record.", "Ours", "Ours", __name__)
    assert set(Ours.__annotations__) == set(Theirs.__annotations__)


def test_a_record_has_what_its_body_defines() -> None:
    assert Ours(1, "a").both == "1a"
    assert Ours(1).larger(2) == Ours(3)
    assert isinstance(Ours(1).larger(2), Ours)


def test_a_record_cannot_be_changed_or_made_wrong() -> None:
    with pytest.raises(AttributeError):
        Ours(1).first = 2  # type: ignore[misc]
    made: Any = Ours
    with pytest.raises(TypeError):
        made()
    with pytest.raises(TypeError):
        made(1, fourth=2)
    with pytest.raises((TypeError, ValueError)):
        made(1)._replace(fourth=2)


def test_a_record_costs_no_typing() -> None:
    program = (
        f"from __future__ import annotations\nimport sys; sys.path.insert(0, {str(CHECKOUT)!r})\n"
        "from loomctl.kit.records import NamedTuple\n"
        "class Made(NamedTuple):\n    field: list[Unknown] | None = None\n"
        "print('typing' in sys.modules, Made())"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False Made(field=None)\n"
