"""What must be in context, whether it is, and what is given."""
