"""What commands share: who asks, how results are printed, options, hints."""
