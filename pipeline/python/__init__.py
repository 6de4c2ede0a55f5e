"""Python functions for verbs of the command line."""
