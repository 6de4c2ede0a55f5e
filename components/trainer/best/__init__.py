"""What the evaluations while training decide: which checkpoint is exported, and when training is over.

The same for every path, and without TensorFlow of its own.
"""
