"""`tfx-estimator compare`: several trainings on the same examples, side by side, and what tells them apart."""
