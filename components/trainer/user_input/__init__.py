"""Shares the batches of a user's input_fn among replicas."""
