"""ExampleValidator: statistics + schema -> anomalies, and an error where there are any."""

from tfx_estimator.components.example_validator.component import ExampleValidator

__all__ = ["ExampleValidator"]
