"""Best checkpoint and early stopping, from the evaluations during training; for every path, without TensorFlow."""
