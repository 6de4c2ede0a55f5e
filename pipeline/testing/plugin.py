"""The plug-in of pytest: brings `tf.estimator` back, and gives `tfx_estimator.testing` a folder of pytest."""

from __future__ import annotations

import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Optional

import pytest

from tfx_estimator.pipeline.testing import folders

# Hundreds of lines of libraries about their own code, and advice to rewrite what this package lets go on.
_LIBRARIES = "gast|tfx|tfx_bsl|ml_metadata|apache_beam|tensorflow|tensorflow_(transform|data_validation|model_analysis)"
_IGNORED = (
    rf"ignore::DeprecationWarning:({_LIBRARIES})\b",
    # Keras's, with Python 3.10.
    r"ignore:non-integer arguments to randrange:DeprecationWarning:random",
    r"ignore:`tf\.layers\.:UserWarning",
)


class _Finder:
    """Brings `tf.estimator` back as soon as TensorFlow is imported."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """Finds TensorFlow, by the other finders, once."""
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = _bringing_back(spec.loader.exec_module)  # type: ignore[method-assign]
        return spec


def _bringing_back(execute: Any) -> Any:
    def exec_module(module: ModuleType) -> None:
        execute(module)
        from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
        from tfx_estimator.pipeline.base.errors import PipelineError

        try:
            bring_back_estimator()
        except PipelineError as error:
            # Tests that use no Estimator need none of its packages.
            warnings.warn(str(error), stacklevel=1)

    return exec_module


def pytest_configure(config: pytest.Config) -> None:
    """Prepares a session."""
    if not sys.warnoptions:
        # At the front: the user's own filters come later, and win.
        config.getini("filterwarnings")[:0] = _IGNORED
    if "tensorflow" not in sys.modules:
        sys.meta_path.insert(0, _Finder())
    # Private: the object that the fixture tmp_path_factory returns, which removes the folders of earlier sessions.
    folders.MAKERS.append(lambda name: config._tmp_path_factory.mktemp(name))  # type: ignore[attr-defined]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends a session."""
    folders.MAKERS.clear()
    sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, _Finder)]
