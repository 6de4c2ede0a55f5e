"""Measures tfx-estimator against named peers: `python -m tests.bench`. Not part of the tests."""
