"""What runs, in which order, where."""
