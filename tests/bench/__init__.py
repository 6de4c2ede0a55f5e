"""Measures tfx-estimator against named peers: `python -m tests.bench`. No part of the tests."""
