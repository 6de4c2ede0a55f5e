"""ImageSchemaGen: what an Examples artifact says of its data set -> a schema."""

from tfx_estimator.components.image_schema_gen.component import ImageSchemaGen

__all__ = ["ImageSchemaGen"]
