"""Data sets: their sources, their reading, and their preprocessing."""
