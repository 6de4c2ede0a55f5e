"""What every training task does, whatever trains in it."""
