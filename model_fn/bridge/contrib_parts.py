"""What Estimator code uses of `tf.contrib` and no package of today has."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Optional

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import config
from tensorflow.python.ops import lookup_ops

v1 = tf.compat.v1
# Of MNIST's training images, the first ones.
_VALIDATION = 5000
# One of HParams.parse: name, value.
_OVERRIDE = re.compile(r"\s*(\w+)\s*=\s*(\[[^\]]*\]|[^,\[]*)(?:,|$)")


def batch_and_drop_remainder(batch_size: Any) -> Callable[[Any], Any]:
    """See `tf.contrib.data` of TensorFlow 1."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(batch_size: Any, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """See `tf.contrib.data` of TensorFlow 1."""
    return lambda dataset: dataset.padded_batch(batch_size, *args, drop_remainder=True, **kwargs)


def MirroredStrategy(  # noqa: N802
    devices: Any = None, num_gpus: Optional[int] = None, num_gpus_per_worker: Optional[int] = None, **options: Any
) -> tf.distribute.Strategy:
    """See `tf.contrib.distribute` of TensorFlow 1."""
    count = num_gpus if num_gpus_per_worker is None else num_gpus_per_worker
    if devices is None and count is not None:
        devices = [f"/gpu:{index}" for index in range(count)] or ["/cpu:0"]
    return v1.distribute.MirroredStrategy(devices, options.get("cross_device_ops", options.get("cross_tower_ops")))


def CollectiveAllReduceStrategy(num_gpus_per_worker: int = 0, **_: Any) -> tf.distribute.Strategy:  # noqa: N802
    """See `tf.contrib.distribute` of TensorFlow 1; each worker takes all its visible GPUs."""
    if not num_gpus_per_worker:
        config.set_visible_devices([], "GPU")
    return v1.distribute.experimental.MultiWorkerMirroredStrategy()


def load_dataset(name: str = "mnist", **_: Any) -> Any:
    """See `tf.contrib.learn.datasets` of TensorFlow 1: MNIST, images as float32 [n, 784] from 0 to 1."""
    if name != "mnist":
        raise ValueError(f"tf.keras.datasets and tensorflow_datasets have {name}: the stand-in of tf.contrib has mnist")
    (images, labels), test = tf.keras.datasets.mnist.load_data()
    parts = {"train": (images[_VALIDATION:], labels[_VALIDATION:]), "test": test}
    parts["validation"] = images[:_VALIDATION], labels[:_VALIDATION]
    return SimpleNamespace(
        **{
            part: SimpleNamespace(images=np.float32(of_part).reshape(len(of_part), -1) / 255, labels=classes)
            for part, (of_part, classes) in parts.items()
        }
    )


datasets = SimpleNamespace(load_dataset=load_dataset)


def index_table_from_tensor(mapping: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls TensorFlow's, whose first parameter has another name."""
    return lookup_ops.index_table_from_tensor(mapping, *args, **kwargs)


def index_to_string_table_from_tensor(mapping: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls TensorFlow's, whose first parameter has another name."""
    return lookup_ops.index_to_string_table_from_tensor(mapping, *args, **kwargs)


def clip_gradients_by_norm(optimizer: Any, clip_norm: Any) -> Any:
    """See `tf.contrib.estimator` of TensorFlow 1."""
    return _Clipping(optimizer, clip_norm)


class _Clipping(tf.compat.v1.train.Optimizer):
    """Clips gradients by their global norm before another optimizer applies them."""

    def __init__(self, optimizer: Any, clip_norm: Any) -> None:
        super().__init__(use_locking=False, name=f"ClipByNorm{optimizer.get_name()}")
        self._optimizer, self._norm = optimizer, clip_norm
        self.compute_gradients, self.get_slot = optimizer.compute_gradients, optimizer.get_slot
        self.get_slot_names, self.variables = optimizer.get_slot_names, optimizer.variables

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        """See tf.compat.v1.train.Optimizer."""
        gradients, variables = zip(*grads_and_vars)
        clipped, _ = tf.clip_by_global_norm(gradients, self._norm)
        return self._optimizer.apply_gradients(zip(clipped, variables), global_step, name)


class LazyAdamOptimizer(tf.compat.v1.train.AdamOptimizer):
    """See `tf.contrib.opt` of TensorFlow 1: Adam that updates moments only of the rows with a gradient."""

    def _apply_sparse_shared(self, grad: Any, var: Any, indices: Any, scatter_add: Any) -> Any:
        given = (*self._get_beta_accumulators(), self._lr_t, self._beta1_t, self._beta2_t, self._epsilon_t)
        power1, power2, rate, beta1, beta2, epsilon = (tf.cast(each, var.dtype.base_dtype) for each in given)
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        first = beta1 * tf.gather(m, indices) + (1 - beta1) * grad
        second = beta2 * tf.gather(v, indices) + (1 - beta2) * tf.square(grad)
        change = rate * tf.sqrt(1 - power2) / (1 - power1) * first / (tf.sqrt(second) + epsilon)
        updates = (v1.scatter_update, m, first), (v1.scatter_update, v, second), (v1.scatter_sub, var, change)
        return tf.group(*(update(of, indices, by, use_locking=self._use_locking) for update, of, by in updates))


class HParams:
    """See `tf.contrib.training` of TensorFlow 1: named values, which text may override, each of its first type."""

    def __init__(self, hparam_def: Any = None, model_structure: Any = None, **values: Any) -> None:
        self._types: dict[str, tuple[type, bool]] = {}
        for name, value in values.items():
            self.add_hparam(name, value)

    def __contains__(self, name: str) -> bool:
        return name in self._types

    def __str__(self) -> str:
        return str(sorted(self.values().items()))

    def add_hparam(self, name: str, value: Any) -> None:
        """Adds a value under a new name."""
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        is_list = isinstance(value, (list, tuple))
        self._types[name] = type(value[0]) if is_list and value else type(value), is_list
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Changes a value, in its type."""
        kind, is_list = self._types[name]
        if is_list != isinstance(value, (list, tuple)):
            raise ValueError(f"Must {'' if is_list else 'not '}pass a list for the hyperparameter {name}")
        setattr(self, name, [_cast(kind, each) for each in value] if is_list else _cast(kind, value))

    def del_hparam(self, name: str) -> None:
        """Removes a value."""
        del self._types[name], self.__dict__[name]

    def parse(self, values: str) -> HParams:
        """Overrides values by text: `rate=0.1,units=[16,32]`."""
        place = 0
        while place < len(values):
            found = _OVERRIDE.match(values, place)
            if not found or found[1] not in self._types:
                raise ValueError(f"Malformed hyperparameter value, or unknown name: {values[place:]}")
            self.set_hparam(found[1], found[2][1:-1].replace(",", " ").split() if found[2][:1] == "[" else found[2])
            place = found.end()
        return self

    def override_from_dict(self, values: dict[str, Any]) -> HParams:
        """Overrides values."""
        for name, value in values.items():
            self.set_hparam(name, value)
        return self

    def parse_json(self, values_json: str) -> HParams:
        """Overrides values by a JSON object."""
        return self.override_from_dict(json.loads(values_json))

    def to_json(self, **options: Any) -> str:
        """Returns the values as a JSON object."""
        return json.dumps(self.values(), **options)

    def values(self) -> dict[str, Any]:
        """Returns the values by their names."""
        return {name: getattr(self, name) for name in self._types}

    def get(self, key: str, default: Any = None) -> Any:
        """Returns a value, or the default."""
        return getattr(self, key) if key in self._types else default


def _cast(kind: type, value: Any) -> Any:
    if kind is bool and str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    if kind is bool:
        return bool(int(value))
    if kind is int and isinstance(value, float):
        raise ValueError(f"{value} is no integer")
    return value if value is None or kind is type(None) else kind(value)
