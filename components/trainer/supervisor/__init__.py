"""Starts, watches, restarts and ends training tasks; imports no TensorFlow of its own."""
