"""Room for texts that are put one below the other, in tokens that an exact tokenizer never counts more of (D51)."""

from __future__ import annotations

from loomctl.reduction.tokens import SPARE, weight

_LINE_END = 1.0


class Room:
    """What is left of a number of tokens."""

    def __init__(self, tokens: float) -> None:
        self.left = tokens

    @classmethod
    def of_text(cls, tokens: int) -> Room:
        """Give the room that a whole text of so many tokens has."""
        return cls(tokens - SPARE - 1.0)

    def has(self, text: str) -> bool:
        """Tell whether there is room for a text."""
        # No text costs less than a token for sixteen characters.
        return len(text) <= 16 * max(0.0, self.left) and weight(text) + _LINE_END <= self.left

    def takes(self, text: str) -> bool:
        """Take a text if there is room for it."""
        if len(text) > 16 * max(0.0, self.left):
            return False
        cost = weight(text) + _LINE_END
        if cost > self.left:
            return False
        self.left -= cost
        return True

    def part(self, share: float) -> Room:
        """Set a share of what is left aside; what it does not use is given `back`."""
        part = Room(self.left * share)
        self.left -= part.left
        return part

    def back(self, part: Room) -> None:
        """Take back what a part did not use."""
        self.left += part.left
