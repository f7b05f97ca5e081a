"""What a call is refused with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loomctl.kit.errors import LoomError

if TYPE_CHECKING:
    from collections.abc import Callable


def refusal(call: Callable[..., object], *given: Any, **named: Any) -> LoomError:
    """Give the error with which a call ends."""
    with pytest.raises(LoomError) as caught:
        call(*given, **named)
    return caught.value
