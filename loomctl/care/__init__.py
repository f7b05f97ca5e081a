"""What keeps an installation and its runs well: archive, restore, clean."""
