"""The process of a training task, for every path of training."""
