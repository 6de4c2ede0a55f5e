"""Batches of a user's input_fn, shared among replicas."""
