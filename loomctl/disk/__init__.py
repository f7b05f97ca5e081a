"""Everything that touches files, git, processes and the clock."""
