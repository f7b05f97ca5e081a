"""One run, shown: status, lines, dump, watch."""
