"""Brings `tf.estimator` back to TensorFlow from 2.16 on, which removed it.

tensorflow-estimator 2.15.0, its last release, is pure Python, and most of its imports are still in TensorFlow. The
others are replaced here before it is imported: `estimator_training`, which every RunConfig with a strategy calls; the
decorator for public names, from which TensorFlow's API was generated; and three modules for TPUs.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any, TypeVar

from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.installed import install_command
from tfx_estimator.pipeline.base.stack.stacks import KERAS, choose_keras

T = TypeVar("T")

_KERAS_2 = "tf_keras"
# Packages of tensorflow-estimator, and their names in TensorFlow.
_NAMES = {
    "tensorflow_estimator._api.v2.estimator": ("tensorflow.estimator", "tensorflow.compat.v2.estimator"),
    "tensorflow_estimator._api.v1.estimator": ("tensorflow.compat.v1.estimator",),
    "tensorflow_estimator.python.estimator": ("tensorflow.python.estimator",),
}
# Removed modules of TensorFlow that only TPUEstimator imports.
_OF_TPUS = ("tpu_embedding", "session_support", "tpu_embedding_gradient")


def bring_back_estimator(tf1: bool = False) -> ModuleType:
    """Sets `tf.estimator` and `tf.compat.v1.estimator` if TensorFlow has neither.

    It may be called before or after `import tensorflow`, and more than once, but before Keras is first used: an
    Estimator needs Keras 2, which is `tf.keras` if TF_USE_LEGACY_KERAS is set and tf_keras is installed.

        import tfx_estimator

        tfx_estimator.bring_back_estimator()

        import tensorflow as tf

        estimator = tf.estimator.Estimator(model_fn, "model")

    Args:
        tf1: True if the program was written for TensorFlow 1: whatever it imports from now on, but for packages named
            `tensorflow_…` and the like, gets `tf.compat.v1` for `import tensorflow`, with `tf.contrib`; and TensorFlow
            2's behaviour is off.

    Returns:
        `tf.estimator` as the program sees it.

    Raises:
        PipelineError: TensorFlow, tensorflow-estimator or tf_keras is not installed, or `tf.keras` is Keras 3 already.
    """
    choose_keras()
    try:
        import tensorflow as tf
    except ModuleNotFoundError as error:
        raise PipelineError(
            f"tf.estimator cannot be brought back: {error}",
            expected="TensorFlow, tf_keras and tensorflow-estimator",
            todo=install_command("estimator"),
        ) from error
    if not hasattr(tf, "estimator"):
        _bring_back(tf)
    _mend_layers()
    # Both import TensorFlow.
    from tfx_estimator.model_fn.bridge.lookups import mend_lookups

    mend_lookups()
    if not tf1:
        return tf.estimator
    from tfx_estimator.model_fn.bridge import tf1 as tensorflow_1

    tf.compat.v1.disable_v2_behavior()
    tensorflow_1.show()
    return tf.compat.v1.estimator


def _mend_layers() -> None:
    """Lets TensorFlow find its BatchNormalization of TensorFlow 1, which it looks for in a package of no Keras 2."""
    from tensorflow.python.layers import normalization
    from tensorflow.python.util.lazy_loader import LazyLoader

    keras = _KERAS_2 if importlib.util.find_spec(_KERAS_2) else "keras"
    place = f"{keras}.src.legacy_tf_layers.normalization"
    normalization.normalization = LazyLoader("normalization", vars(normalization), place)


def _bring_back(tf: Any) -> None:
    _check_keras(tf)
    _prefer_keras_2(tf)
    _stand_in(tf)
    try:
        v2 = importlib.import_module("tensorflow_estimator._api.v2.estimator")
        v1 = importlib.import_module("tensorflow_estimator._api.v1.estimator")
    except ModuleNotFoundError as error:
        raise PipelineError(
            f"TensorFlow {tf.__version__} has no tf.estimator, and it cannot be brought back: {error}",
            expected="tensorflow-estimator 2.15.0",
            todo="pip install --no-deps tensorflow-estimator==2.15.0",
        ) from error
    tf.estimator = v2
    for each in (tf, tf.compat.v1, tf.compat.v2):
        each.compat.v1.estimator, each.compat.v2.estimator = v1, v2
    _give_names()


def _prefer_keras_2(tf: Any) -> None:
    """Makes `from tensorflow.keras import …` import Keras 2 if TensorFlow was imported before it was chosen."""
    spec = importlib.util.find_spec(f"{_KERAS_2}.api._v2")
    places = list(spec.submodule_search_locations or ()) if spec else []
    tf.__path__[:0] = [place for place in places if place not in tf.__path__]


def _give_names() -> None:
    """Registers the imported modules for `from tensorflow.estimator import …` and the like."""
    for name, module in list(sys.modules.items()):
        for package, names in _NAMES.items():
            if name == package or name.startswith(f"{package}."):
                for each in names:
                    sys.modules.setdefault(each + name.removeprefix(package), module)


def _check_keras(tf: Any) -> None:
    try:
        whose = tf.keras.layers.Layer.__module__.partition(".")[0]
    except ImportError as error:
        raise PipelineError(
            f"tf.estimator needs Keras 2: {error}",
            expected=f"{_KERAS_2} of TensorFlow's own version, {tf.__version__}",
            todo=f"pip install {_KERAS_2}~={tf.__version__.rpartition('.')[0]}.0",
        ) from error
    if whose != _KERAS_2:
        raise PipelineError(
            "tf.estimator needs Keras 2, and tf.keras is Keras 3",
            expected=f"{KERAS}=1 in the environment before Keras is first used",
            todo=f"call bring_back_estimator() first of all, and leave {KERAS} unset or set it to 1",
        )


def _stand_in(tf: Any) -> None:
    """Registers replacements of removed modules."""
    from tfx_estimator.model_fn.bridge import estimator_training

    _place("tensorflow.python.distribute.estimator_training", estimator_training)
    export = ModuleType("tensorflow_estimator.python.estimator.estimator_export")
    vars(export)["estimator_export"] = _Export
    _place(export.__name__, export)
    for name in _OF_TPUS:
        _place(f"tensorflow.python.tpu.{name}", _OfTpus(f"tensorflow.python.tpu.{name}"))


def _place(name: str, module: ModuleType) -> None:
    """Registers a module under a name, unless TensorFlow has it."""
    sys.modules.setdefault(name, module)
    parent, _, child = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], child, sys.modules[name])


class _Export:
    """Replaces the decorator of public names, which tensorflow-estimator's API modules also list."""

    def __init__(self, *names: str, v1: Any = None) -> None: ...

    def __call__(self, symbol: T) -> T:
        return symbol

    def export_constant(self, module: str, name: str) -> None: ...


class _OfTpus(ModuleType):
    """A module with importable names, each of which raises an error when it is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        where = self.__name__

        def gone(*args: Any, **kwargs: Any) -> Any:
            raise PipelineError(
                f"TensorFlow no longer has {where}.{name}, which TPUEstimator needs for a TPU",
                expected="TPUEstimator(use_tpu=False), or another way to train on a TPU",
                todo="train with tf.distribute.TPUStrategy and Keras (trainer.path: keras)",
            )

        return type(name, (), {"__init__": gone})
