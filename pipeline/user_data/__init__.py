"""Reads what lies in a folder or table of the user's, once, for `data`, `validate` and `run`; imports no package."""
