"""What keeps an installation and its runs well: doctor, archive, restore, verify, clean."""
