"""Runs that go on by themselves: drive one, tell it something, stop it, see what waits."""
