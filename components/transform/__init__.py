"""Transform: examples + schema -> transform_graph, by a preprocessing_fn that keeps its contract."""

from tfx_estimator.components.transform.component import Transform

__all__ = ["Transform"]
