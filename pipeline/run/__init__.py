"""Running a pipeline: console, dry run, results, joining a cluster."""
