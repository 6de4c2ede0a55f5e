"""TfdsExampleGen: labelled images -> sharded tf.Examples."""

from tfx_estimator.components.tfds_example_gen.component import TfdsExampleGen

__all__ = ["TfdsExampleGen"]
