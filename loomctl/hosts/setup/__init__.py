"""What an assistant's own install cannot do for Loom: its user's files and a link on PATH, made, looked at, undone.

A module bears its host's name and has `plan(places)` and `FOLDER`, the variable and the path of the host's settings. It
may have `LOGIN_SHELL`, true where the host runs all commands in one, so that the user's own PATH tells nothing.
"""
