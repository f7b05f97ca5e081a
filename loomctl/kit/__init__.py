"""What every room uses: errors, files, locks, times, names."""
