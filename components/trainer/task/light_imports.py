"""Lazy imports of what training does not need, which halves a task's start, and so each restart.

`tfx.components` imports every component of TFX, and with them Beam, TFMA, TFDV and clients of Google Cloud, for the few
functions that a Trainer calls. These modules are imported on the first access to one of their attributes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from tfx_estimator.pipeline.base.stack import stacks, tfma_export

_TFMA = "tensorflow_model_analysis"
# A light sub-module of a heavy package, read as its attribute.
_SDK = f"{_TFMA}.sdk"
_PACKAGES = (
    "tfx.components",
    "tensorflow_data_validation",
    _TFMA,
    # TFX 1.21's Trainer imports it; its annotations need TFDV.
    "tfx.components.statistics_gen.stats_artifact_utils",
)
_TFXIO = "tfx.components.util.tfxio_utils"
# The functions of `fn_args.data_accessor`, which read examples and are rarely called.
_FACTORIES = ("get_tf_dataset_factory_from_artifact", "get_record_batch_factory_from_artifact")
# The dunder attributes that load a module; Python reads others without need of its code.
_LOADING_DUNDERS = ("__all__", "__version__")
_DATA_VIEW = "get_data_view_decode_fn_from_artifact"


def apply() -> None:
    """Puts lazy modules in the place of those not imported yet."""
    for name in (*_PACKAGES, _TFXIO):
        with contextlib.suppress(ImportError):
            _defer(name, _TfxioUtils if name == _TFXIO else _Deferred)
    with contextlib.suppress(ImportError):
        # With protobuf 6, TFMA's messages need it to be imported first.
        importlib.import_module("google.protobuf.wrappers_pb2")
        importlib.import_module(_SDK)
        # TFX reads these names from TFMA, and TFMA 0.52 gets them only when `tfx.components` is run.
        configs = importlib.import_module(f"{_TFMA}.proto.config_pb2")
        for name in configs.DESCRIPTOR.message_types_by_name:
            setattr(sys.modules[_TFMA], name, getattr(configs, name))
        if not stacks.current().has_eval_saved_model:
            vars(sys.modules[_TFMA])["export"] = tfma_export


class _Deferred(types.ModuleType):
    """A module whose code runs on access to an attribute that it lacks; importing a sub-module does not run it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _LOADING_DUNDERS:
            raise AttributeError(name)
        self._load()
        return getattr(self, name)

    def _load(self) -> None:
        # Before the code runs: it may read attributes that it has not defined yet.
        self.__class__ = types.ModuleType  # type: ignore[assignment]
        spec = self.__spec__
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(self)


class _TfxioUtils(_Deferred):
    """Returns the functions of a data accessor without loading TFX's module before they are called."""

    def __getattr__(self, name: str) -> Any:
        if name in _FACTORIES:
            return functools.partial(self._factory, name)
        if name == _DATA_VIEW:
            return self._data_view
        return super().__getattr__(name)

    def _factory(self, name: str, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        def call(*call_args: Any, **call_kwargs: Any) -> Any:
            if isinstance(self, _Deferred):
                self._load()
            return getattr(self, name)(*args, **kwargs)(*call_args, **call_kwargs)

        return call

    def _data_view(self, examples: Sequence[Any], telemetry_descriptors: Sequence[str]) -> Any:
        from tfx.components.util import examples_utils
        from tfx.proto import example_gen_pb2

        proto = example_gen_pb2.PayloadFormat.FORMAT_PROTO
        if all(examples_utils.get_payload_format(each) != proto for each in examples):
            return None
        if isinstance(self, _Deferred):
            self._load()
        return getattr(self, _DATA_VIEW)(examples, telemetry_descriptors)


def _defer(name: str, kind: type[_Deferred]) -> None:
    if name in sys.modules:
        return
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    module.__class__ = kind
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
