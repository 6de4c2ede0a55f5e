"""Stands in for `tf.contrib`, which TensorFlow 2 has not: what Estimator code uses of it, where that is today."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import Any, NamedTuple

from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.installed import install_command

_SLIM = "tf_slim"
_V1 = "tensorflow.compat.v1"
_PARTS = "tfx_estimator.model_fn.bridge.contrib_parts"
_HEADS = "tensorflow_estimator.python.estimator.canned.head"


class _Row(NamedTuple):
    """Where a module's names are today: modules that have them, and module:name of those that have another."""

    places: tuple[str, ...] = ()
    renamed: dict[str, str] = {}


_ROWS = {
    "cluster_resolver": _Row((f"{_V1}.distribute.cluster_resolver",)),
    "data": _Row(
        (f"{_V1}.data.experimental", f"{_V1}.data"),
        {each: f"{_PARTS}:{each}" for each in ("batch_and_drop_remainder", "padded_batch_and_drop_remainder")},
    ),
    "distribute": _Row(
        (f"{_V1}.distribute", f"{_V1}.distribute.experimental"),
        {
            **{each: f"{_PARTS}:{each}" for each in ("MirroredStrategy", "CollectiveAllReduceStrategy")},
            "AllReduceCrossTowerOps": f"{_V1}.distribute:AllReduceCrossDeviceOps",
            "DistributeConfig": "tensorflow.python.distribute.distribute_config:DistributeConfig",
        },
    ),
    "estimator": _Row(
        (f"{_V1}.estimator", f"{_V1}.estimator.experimental"),
        {
            "binary_classification_head": f"{_HEADS}:_binary_logistic_head_with_sigmoid_cross_entropy_loss",
            "clip_gradients_by_norm": f"{_PARTS}:clip_gradients_by_norm",
            "multi_class_head": f"{_HEADS}:_multi_class_head_with_softmax_cross_entropy_loss",
            "regression_head": f"{_HEADS}:_regression_head",
        },
    ),
    "feature_column": _Row((f"{_V1}.feature_column", "tensorflow.compat.v2.feature_column")),
    "framework": _Row((f"{_V1}.train", _V1, _SLIM), {"nest": "tensorflow.python.util:nest"}),
    "layers": _Row((f"{_SLIM}.layers", _SLIM)),
    "learn": _Row(
        (),
        {
            **{each: f"{_V1}.estimator:{each}" for each in ("ModeKeys", "RunConfig")},
            "datasets": f"{_PARTS}:datasets",
        },
    ),
    "lookup": _Row(
        ("tensorflow.python.ops.lookup_ops",),
        {name: f"{_PARTS}:{name}" for name in ("index_table_from_tensor", "index_to_string_table_from_tensor")},
    ),
    "metrics": _Row((f"{_SLIM}.metrics",)),
    "opt": _Row((_PARTS,)),
    "rnn": _Row((f"{_V1}.nn.rnn_cell", f"{_V1}.nn")),
    "slim": _Row((_SLIM,)),
    "summary": _Row(
        ("tensorflow.python.ops.summary_ops_v2",),
        {"all_summary_ops": "tensorflow.python.ops.summary_ops_v2:all_v2_summary_ops"},
    ),
    "tpu": _Row((f"{_V1}.estimator.tpu", f"{_V1}.tpu")),
    "training": _Row((f"{_SLIM}.training.training",), {"HParams": f"{_PARTS}:HParams"}),
    "util": _Row((_V1,)),
}
# What takes the place of names that are in no module of today.
_INSTEAD = {
    "boosted_trees": "TensorFlow Decision Forests",
    "crf": "TensorFlow Addons' tfa.text",
    "eager": "tf.compat.v2",
    "layers.bucketized_column": "tf.feature_column.bucketized_column",
    "layers.crossed_column": "tf.feature_column.crossed_column",
    "layers.embedding_column": "tf.feature_column.embedding_column",
    "layers.real_valued_column": "tf.feature_column.numeric_column",
    "layers.sparse_column": "tf.feature_column.categorical_column_with_…",
    "learn": "tf.estimator, and tf.estimator.train_and_evaluate for an Experiment",
    "predictor": "tf.saved_model.load",
    "quantize": "the TensorFlow Model Optimization Toolkit",
    "seq2seq": "TensorFlow Addons' tfa.seq2seq",
}


class MissingNameError(PipelineError, AttributeError):
    """A name of `tf.contrib` without a stand-in, for `hasattr` and `except AttributeError`."""


class MissingModuleError(PipelineError, ImportError):
    """A module of `tf.contrib` without a stand-in, for `except ImportError`."""


class Contrib(ModuleType):
    """`tf.contrib`, or one of its modules; a folder of its sources, `layers.python.ops`, has the module's names."""

    def __init__(self, *path: str) -> None:
        super().__init__(".".join(("tensorflow.contrib", *path)))
        self._path = path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = self._find(name)
        setattr(self, name, value)
        return value

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Raises the error of a missing name: in a folder of the sources it is taken for a file."""
        raise self._missing()

    def _find(self, name: str) -> Any:
        child = Contrib(*self._path, name)
        if not self._path:
            if name not in _ROWS:
                raise child._missing()
            return child
        row = _ROWS[self._path[0]]
        if name in row.renamed:
            module, _, name = row.renamed[name].partition(":")
            return getattr(_module(module), name)
        if child._instead():
            raise child._missing()
        in_sources = name == "python" or "python" in self._path
        for module in map(_module, row.places):
            if isinstance(found := getattr(module, name, None), ModuleType) and in_sources:
                return child
            if found is not None:
                return found
            if hasattr(module, "__path__") and importlib.util.find_spec(f"{module.__name__}.{name}"):
                return importlib.import_module(f"{module.__name__}.{name}")
        if in_sources:
            return child
        raise child._missing()

    def _instead(self) -> str:
        name = ".".join(self._path)
        return next((f"{each}, in its place" for start, each in _INSTEAD.items() if name.startswith(start)), "")

    def _missing(self) -> MissingNameError:
        modules = f"one of tf.contrib.{{{', '.join(_ROWS)}}}" if len(self._path) == 1 else "another of its names"
        return MissingNameError(
            f"tf.contrib.{'.'.join(self._path)} has no stand-in",
            expected=self._instead() or modules,
            todo="use that, or copy the source from tensorflow/contrib of TensorFlow's branch r1.15 into your project",
        )


def _module(name: str) -> Any:
    """Imports a module, or finds an attribute of TensorFlow's lazy modules."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == _SLIM:
            raise PipelineError(
                "tf.contrib.layers, slim, framework, metrics and training need tf_slim, which is not installed",
                expected="tf_slim 1.1.0",
                todo=install_command("slim"),
            ) from error
        parent, _, child = name.rpartition(".")
        return getattr(_module(parent), child)
