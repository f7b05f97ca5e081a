"""What a step has to show before it counts as done."""
