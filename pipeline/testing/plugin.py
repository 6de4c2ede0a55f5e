"""The plug-in of pytest: brings `tf.estimator` back, and gives `tfx_estimator.testing` a folder of pytest."""

from __future__ import annotations

import sys
import warnings

import pytest

from tfx_estimator.pipeline import testing
from tfx_estimator.pipeline.base.after_tensorflow import after_tensorflow

# Hundreds of lines of libraries about their own code, and advice to rewrite what this package lets go on.
_LIBRARIES = "gast|tfx|tfx_bsl|ml_metadata|apache_beam|tensorflow|tensorflow_(transform|data_validation|model_analysis)"
_IGNORED = (
    rf"ignore::DeprecationWarning:({_LIBRARIES})\b",
    # Keras's, with Python 3.10.
    r"ignore:non-integer arguments to randrange:DeprecationWarning:random",
    r"ignore:`tf\.layers\.:UserWarning",
)


def pytest_configure(config: pytest.Config) -> None:
    """Prepares a session."""
    if not sys.warnoptions:
        # At the front: the user's own filters come later, and win.
        config.getini("filterwarnings")[:0] = _IGNORED
    after_tensorflow(_bring_back)
    # Private: the object that the fixture tmp_path_factory returns, which removes the folders of earlier sessions.
    testing.root = lambda: config._tmp_path_factory.getbasetemp()  # type: ignore


def _bring_back() -> None:
    from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
    from tfx_estimator.pipeline.base.errors import PipelineError

    try:
        bring_back_estimator()
    except PipelineError as error:
        # Tests that use no Estimator need none of its packages.
        warnings.warn(str(error), stacklevel=1)
