"""Where a pipeline runs."""
