"""A workflow played without an assistant."""
