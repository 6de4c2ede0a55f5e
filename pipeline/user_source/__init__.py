"""Finds, reads and fingerprints the user's modules, as text."""
