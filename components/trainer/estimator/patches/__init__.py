"""What a training task changes in TensorFlow, in its own process alone."""
