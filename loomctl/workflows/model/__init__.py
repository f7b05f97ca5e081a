"""What a workflow is made of, as plain data; pure."""
