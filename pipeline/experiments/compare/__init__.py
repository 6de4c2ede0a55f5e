"""`tfx-estimator compare`: compares trainings on the same examples."""
