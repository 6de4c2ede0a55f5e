"""A run's report: an HTML page with its components, training, evaluation and data."""
