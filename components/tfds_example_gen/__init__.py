"""TfdsExampleGen: labelled images -> sharded tf.Examples."""

from components.tfds_example_gen.component import TfdsExampleGen

__all__ = ["TfdsExampleGen"]
