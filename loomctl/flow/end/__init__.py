"""The end of a step, as it is judged and recorded."""
