"""Starts, watches, restarts and ends training tasks, without importing TensorFlow."""
