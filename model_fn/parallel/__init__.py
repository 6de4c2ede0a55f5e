"""Distribution strategies, model parallelism and pipeline parallelism."""
