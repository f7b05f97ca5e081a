"""A stop of the assistant, and what it means for the step."""
