"""The command line: one file for each noun; it parses and prints, nothing else."""
