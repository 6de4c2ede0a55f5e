"""Experiments on trainings: bench, compare, estimate, and the page of several runs."""
