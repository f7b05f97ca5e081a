"""Tool output reduced: signal, rules, live excerpts, history, tokens."""
