"""How long a text is, in the two units that hosts limit what is put into a conversation by (D19)."""

from __future__ import annotations


def utf16_units(text: str) -> int:
    """Give the length as JavaScript counts it: 1 for é, 2 for an emoji, 1 for a lone surrogate.

    The units of two texts add up to the units of the two joined.
    """
    return len(text) if text.isascii() else len(text.encode("utf-16", "surrogatepass")) // 2 - 1  # its mark


def utf8_bytes(text: str) -> int:
    """Give the length in UTF-8; a lone surrogate, which UTF-8 cannot hold, counts as the 3 bytes it would take.

    The bytes of two texts add up to the bytes of the two joined.
    """
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
