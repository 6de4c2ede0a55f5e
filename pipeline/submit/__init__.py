"""Submits a compiled pipeline to the service that runs it, and follows it."""
