"""What `tfx-estimator bench` measures in a task, on every path."""
