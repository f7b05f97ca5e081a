"""Workflows written in Graphviz DOT."""
