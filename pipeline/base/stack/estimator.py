"""Brings `tf.estimator` back where TensorFlow has it no more: from 2.16 on.

tensorflow-estimator 2.15.0, its last release, is Python alone, and nearly all that it imports is still in TensorFlow.
What is not is put in place here, before it is imported: `estimator_training`, which every RunConfig with a strategy
calls; the decorator that wrote down public names, by which TensorFlow's API was generated; and three modules for TPUs.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any, TypeVar

from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.stack.stacks import KERAS, choose_keras

T = TypeVar("T")

_KERAS_2 = "tf_keras"
# Packages of tensorflow-estimator, and the names that TensorFlow gave them.
_NAMES = {
    "tensorflow_estimator._api.v2.estimator": ("tensorflow.estimator", "tensorflow.compat.v2.estimator"),
    "tensorflow_estimator._api.v1.estimator": ("tensorflow.compat.v1.estimator",),
    "tensorflow_estimator.python.estimator": ("tensorflow.python.estimator",),
}
# Modules that TPUEstimator alone imports, and TensorFlow has no more.
_OF_TPUS = ("tpu_embedding", "session_support", "tpu_embedding_gradient")


def bring_back_estimator() -> ModuleType:
    """Sets `tf.estimator` and `tf.compat.v1.estimator` where TensorFlow has neither; else changes nothing.

    It may be called before or after `import tensorflow`, and more than once, but before Keras is first used: an
    Estimator needs Keras 2, which is `tf.keras` where TF_USE_LEGACY_KERAS is set and tf_keras is installed.

        import tfx_estimator

        tfx_estimator.bring_back_estimator()

        import tensorflow as tf

        estimator = tf.estimator.Estimator(model_fn, "model")

    Returns:
        `tf.estimator`.

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
            todo='pip install "tfx-estimator[estimator]", or the wheel of it with [estimator]',
        ) from error
    if hasattr(tf, "estimator"):
        return tf.estimator
    _check_keras(tf)
    _prefer_keras_2(tf)
    _stand_in(tf)
    try:
        v2 = importlib.import_module("tensorflow_estimator._api.v2.estimator")
        v1 = importlib.import_module("tensorflow_estimator._api.v1.estimator")
    except ModuleNotFoundError as error:
        raise PipelineError(
            f"TensorFlow {tf.__version__} has no tf.estimator, and it cannot be brought back: {error}",
            expected="tensorflow-estimator 2.15.0, from which it comes",
            todo="pip install --no-deps tensorflow-estimator==2.15.0",
        ) from error
    for v2_of, v1_of in ((tf, tf.compat.v1), (tf.compat.v2, tf.compat.v1.compat.v1)):
        v2_of.estimator, v1_of.estimator = v2, v1
    _give_names()
    return v2


def _prefer_keras_2(tf: Any) -> None:
    """Has `from tensorflow.keras import …` be Keras 2 where TensorFlow was imported before that was asked for."""
    spec = importlib.util.find_spec(f"{_KERAS_2}.api._v2")
    places = list(spec.submodule_search_locations or ()) if spec else []
    tf.__path__[:0] = [place for place in places if place not in tf.__path__]


def _give_names() -> None:
    """Has `from tensorflow.estimator import …` and its like find what is imported by now."""
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
    """Puts modules in the place of those that are gone."""
    from tfx_estimator.pipeline.base.stack import estimator_training

    _place("tensorflow.python.distribute.estimator_training", estimator_training)
    export = ModuleType("tensorflow_estimator.python.estimator.estimator_export")
    vars(export)["estimator_export"] = _Export
    _place(export.__name__, export)
    for name in _OF_TPUS:
        _place(f"tensorflow.python.tpu.{name}", _OfTpus(f"tensorflow.python.tpu.{name}"))


def _place(name: str, module: ModuleType) -> None:
    """Has a module imported by a name, unless TensorFlow has it after all."""
    sys.modules.setdefault(name, module)
    parent, _, child = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], child, sys.modules[name])


class _Export:
    """The decorator that noted public names; they stand in tensorflow-estimator's own modules as well."""

    def __init__(self, *names: str, v1: Any = None) -> None: ...

    def __call__(self, symbol: T) -> T:
        return symbol

    def export_constant(self, module: str, name: str) -> None: ...


class _OfTpus(ModuleType):
    """A module whose names can be imported, and tell who uses one that it is gone."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        where = self.__name__

        def gone(*args: Any, **kwargs: Any) -> Any:
            raise PipelineError(
                f"{where}.{name} is no more in TensorFlow, and TPUEstimator needs it for a TPU",
                expected="TPUEstimator(use_tpu=False), or another way to train on a TPU",
                todo="train with tf.distribute.TPUStrategy and Keras (trainer.path: keras)",
            )

        return type(name, (), {"__init__": gone})
