"""What must survive a compaction, and the receipts that prove it."""
