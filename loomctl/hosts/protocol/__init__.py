"""A host's hook events in one shape, answered alike for all hosts."""
