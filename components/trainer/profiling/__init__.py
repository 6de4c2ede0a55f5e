"""Profiles some steps of a task, on every path."""
