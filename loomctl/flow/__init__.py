"""A run's way: start, resume, next, finish, route, undo, fork."""
