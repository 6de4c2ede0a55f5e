"""The lowest layer, which imports nothing else of this project."""
