"""A workflow or a run as a drawing."""
