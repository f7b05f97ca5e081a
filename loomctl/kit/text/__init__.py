"""Text that is shown: secrets masked, fences, widths, differences."""
