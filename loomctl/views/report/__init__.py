"""A run as one page: its document, its sections, its files."""
