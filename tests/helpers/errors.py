"""What a call is refused with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from loomctl.kit.errors import LoomError


def refusal(call: Callable[..., object], *given: Any, **named: Any) -> LoomError:
    """Give the error with which a call ends."""
    with pytest.raises(LoomError) as caught:
        call(*given, **named)
    return caught.value


@contextmanager
def refused(code: str, **more: Any) -> Iterator[pytest.ExceptionInfo[LoomError]]:
    """Hold that what is done is refused by this error. more: what its other fields are, such as `hint`."""
    with pytest.raises(LoomError) as caught:
        yield caught
    error = caught.value
    assert {"code": error.code, **{name: getattr(error, name) for name in more}} == {"code": code, **more}
