"""SHA-256 without the cost of OpenSSL: a hook that imports `hashlib` pays 8 ms for a library it does not need."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from hashlib import sha256
    from typing import Any
else:
    try:
        from _sha2 import sha256  # Python 3.12 and later
    except ImportError:
        try:
            from _sha256 import sha256  # up to 3.11
        except ImportError:  # an interpreter built without its own
            from hashlib import sha256


def of_parts(parts: Iterable[bytes]) -> str:
    """Give the SHA-256 of bytes that are given in parts."""
    seen = sha256()
    for part in parts:
        seen.update(part)
    return seen.hexdigest()


def of_bytes(data: bytes) -> str:
    """Give the SHA-256 of `data` as 64 hexadecimal digits."""
    return sha256(data).hexdigest()


def of_text(text: str) -> str:
    """Give the SHA-256 of the text's UTF-8 bytes; lone surrogates are hashed as such, never refused."""
    return of_bytes(text.encode("utf-8", "surrogatepass"))


def begun() -> Any:
    """Give a digest to be fed piece by piece, as hashlib's are."""
    return sha256()
