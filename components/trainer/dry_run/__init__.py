"""Tries the user's code on made-up examples, before any data is ingested."""
