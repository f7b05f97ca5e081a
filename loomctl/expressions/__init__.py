"""Expressions of workflows: JavaScript conditions, JSONPath, placeholders."""
