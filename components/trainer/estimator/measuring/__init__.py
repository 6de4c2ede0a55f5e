"""What `tfx-estimator bench` measures of an Estimator, inside its tasks."""
