"""Finds, parses and fingerprints the user's modules without importing them."""
