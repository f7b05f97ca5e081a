"""The text that opens a step."""
