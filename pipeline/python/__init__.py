"""Verbs of the command line as functions of Python."""
