"""`trainer.model_parallel.layout`: single weights of a network in parts on several devices, by TensorFlow's DTensor.

Each device has a part of a weight, of its gradient and of the optimizer's slots; everything else is on each of them
whole. What a layer with split weights puts out is put together before anything else sees it, so that whatever
surrounds it computes with whole tensors.

Source: https://www.tensorflow.org/guide/dtensor_overview.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Optional

import tensorflow as tf
from tensorflow.experimental import dtensor

from tfx_estimator.pipeline.base.stack import keras2
from tfx_estimator.pipeline.config.parallel import ModelParallel
from tfx_estimator.pipeline.errors import DeclarationError, UserCodeError

base_layer = keras2.internal("engine.base_layer")
_OPTION = "trainer.model_parallel"
# DTensor of TensorFlow 2.15 puts parts together by CollectiveGatherV2 unless told otherwise. Steps that are right by
# sums of zeros and a part, which is the other way, had other weights so, in the same digits each time.
_GATHER = "LOWER_DTENSOR_GATHER_TO_COLLECTIVE_GATHER_V2"


class SplitWeights:
    """The weights of a declaration's layout.

    A network that is made, built and called in `used` has its weights split.

    Args:
        declared: With a mesh and a layout.

    Raises:
        DeclarationError: This process has not the devices.
    """

    def __init__(self, declared: ModelParallel) -> None:
        os.environ[_GATHER] = "0"
        ((self._dimension, self._parts),) = (declared.mesh or {}).items()
        self._patterns = dict(declared.layout or {})
        self._mesh = dtensor.create_mesh([(self._dimension, self._parts)], devices=_devices(declared))
        self._split: dict[int, tf.keras.layers.Layer] = {}
        self._named: set[str] = set()
        self._weights: list[str] = []
        self._layer: Optional[tf.keras.layers.Layer] = None
        self._slots: Optional[dict[tuple[str, tuple], tf.Variable]] = None

    @contextlib.contextmanager
    def used(self, model: Optional[tf.keras.Model] = None) -> Iterator[None]:
        """Has layers that are called inside make their variables on the mesh, and put together what they put out.

        Args:
            model: Called inside; None while it is made.

        Yields:
            Nothing.
        """
        original = base_layer.Layer.__call__

        @functools.wraps(original)
        def call(layer: tf.keras.layers.Layer, *args: Any, **kwargs: Any) -> Any:
            outer, self._layer = self._layer, layer
            try:
                if model is not None and tf.executing_eagerly():
                    args, kwargs = self.put((args, kwargs))
                if model is None:
                    return original(layer, *args, **kwargs)
                if id(layer) in self._split:
                    # What it reads is whole, and so its gradient is put together, too: DTensor has no rule for the
                    # parts of many operations.
                    args, kwargs = tf.nest.map_structure(self._whole, (args, kwargs))
                # Of the outermost: what is raised within a layer, Keras raises anew as something else.
                with computable() if outer is None else contextlib.nullcontext():
                    outputs = original(layer, *args, **kwargs)
                # It may have made its weights in this call.
                return tf.nest.map_structure(self._whole, outputs) if id(layer) in self._split else outputs
            finally:
                self._layer = outer

        base_layer.Layer.__call__ = call
        try:
            with tf.variable_creator_scope(self._create):
                yield
        finally:
            base_layer.Layer.__call__ = original

    @contextlib.contextmanager
    def optimizing(self, variables: Sequence[tf.Variable]) -> Iterator[None]:
        """Has an optimizer that is made inside keep its slots as the weights are split.

        Args:
            variables: What is trained.

        Yields:
            Nothing.
        """
        self._slots = {(each._shared_name, tuple(each.shape)): each for each in variables}
        try:
            with tf.variable_creator_scope(self._create):
                yield
        finally:
            self._slots = None

    def check(self, model: tf.keras.Model) -> None:
        """Refuses patterns that fit no weight.

        Args:
            model: Called, so that it has all its variables.

        Raises:
            UserCodeError: A pattern fits none.
        """
        for pattern in self._patterns:
            if pattern not in self._named:
                raise UserCodeError(
                    f"{_OPTION}.layout: the network has no weight that {pattern!r} decides on",
                    expected=f"its weights, or patterns of them: {', '.join(self._weights)}",
                    todo="name one of them: layer/weight, as dense1/kernel",
                )

    def put(self, values: Any) -> Any:
        """Copies tensors to each device, whole.

        Args:
            values: Nested; what is no tensor, or is there already, stays as it is.
        """

        def copy(value: Any) -> Any:
            if not isinstance(value, tf.Tensor) or dtensor.is_dtensor(value):
                return value
            return dtensor.copy_to_mesh(value, dtensor.Layout.replicated(self._mesh, value.shape.rank))

        return tf.nest.map_structure(copy, values)

    def as_kept(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns gradients that are split as their variables are.

        TensorFlow's fused updates, ResourceApplyMomentum among them, end the process where they are not: DTensor has no
        place for another layout there (`LLVM ERROR: Failed to infer result type(s)`, or SIGSEGV).

        Args:
            gradients: Dense; None where the loss does not depend on the variable.
            variables: As many.
        """
        return [
            None if each is None else dtensor.relayout(tf.convert_to_tensor(each), variable.layout)
            for each, variable in zip(gradients, variables)
        ]

    def taken(self, value: tf.Tensor) -> tf.Tensor:
        """Returns the first device's copy of what each has whole."""
        return dtensor.unpack(value)[0]

    def make_step(self, train_step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Makes the function of a step.

        Args:
            train_step: Takes a batch, and returns scalars by name.

        Returns:
            A function of a batch that is not on the mesh yet, and of ordinary scalars.
        """
        step = tf.function(train_step)

        def execute(batch: Any) -> dict[str, tf.Tensor]:
            with dtensor.default_mesh(self._mesh), computable():
                values = step(self.put(batch))
            ordinary = {name: self.taken(value) for name, value in values.items()}
            # The messages of two steps have the same names: one step is over before the next begins.
            for value in ordinary.values():
                value.numpy()
            return ordinary

        return execute

    def _whole(self, value: Any) -> Any:
        if not tf.is_tensor(value):
            return value
        return dtensor.relayout(value, dtensor.Layout.replicated(self._mesh, value.shape.rank))

    def _create(self, next_creator: Callable[..., tf.Variable], **kwargs: Any) -> tf.Variable:
        """Makes a variable of a layer, or of the optimizer, on the mesh."""
        name = kwargs.get("name") or "variable"
        if self._slots is None and self._layer is None:
            # A counter of Keras's.
            return next_creator(**kwargs)
        if kwargs.get("constraint") is not None:
            raise UserCodeError(
                f"{_OPTION}.layout: {self._layer.name if self._layer else name} has a weight with a constraint, which "
                "is not applied where weights are on a mesh",
                expected="layers without kernel_constraint and bias_constraint",
                todo=f"remove the constraint, or {_OPTION}",
            )
        initial = kwargs["initial_value"]
        with tf.init_scope(), tf.device(None):
            value = tf.convert_to_tensor(initial() if callable(initial) else initial, kwargs.get("dtype"))
            if self._slots is None:
                spec = self._spec_of(self._layer, name, value.shape)
            else:
                # Layers of models within a model may have the same names.
                of = self._slots.get((name.rpartition("/")[0], tuple(value.shape)))
                spec = [dtensor.UNSHARDED] * value.shape.rank if of is None else of.layout.sharding_specs
            placed = dtensor.relayout(self.put(value), dtensor.Layout(spec, self._mesh))
            kept = {
                key: kwargs[key] for key in ("trainable", "name", "synchronization", "aggregation") if key in kwargs
            }
        return _Weight(placed, dtype=placed.dtype, **kept)

    def _spec_of(self, layer: tf.keras.layers.Layer, weight: str, shape: tf.TensorShape) -> list[str]:
        """How a weight is split.

        Raises:
            UserCodeError: It cannot be split as declared.
        """
        name = f"{layer.name}/{weight.rpartition('/')[2]}"
        self._weights.append(name)
        best = deciding(self._patterns, name)
        if best is None:
            return [dtensor.UNSHARDED] * shape.rank
        self._named.add(best)
        dimensions = self._patterns[best]
        if not any(dimensions):
            return [dtensor.UNSHARDED] * shape.rank
        where, sizes = f"{_OPTION}.layout.{best}", shape.as_list()
        if not isinstance(layer, tf.keras.layers.Dense):
            raise UserCodeError(
                f"{where}: {layer.name} is a layer of the kind {type(layer).__name__}, whose weights stay whole: "
                "DTensor wants the filters of convolutions so, and others have not been tried",
                expected="weights of layers of the kind Dense",
                todo="name such layers alone",
            )
        if len(dimensions) != len(sizes):
            raise UserCodeError(
                f"{where}: {name} has the shape {sizes}, and the layout {len(dimensions)} dimensions",
                expected=f"{len(sizes)}, each null or {self._dimension}",
                todo="a kernel has two, a bias one: write a line for each",
            )
        for size, dimension in zip(sizes, dimensions):
            if dimension and size % self._parts:
                raise UserCodeError(
                    f"{where}: {name} has the shape {sizes}, and {size} cannot be split into {self._parts} equal parts",
                    expected=f"a multiple of {self._parts}",
                    todo="split it along its other dimension, or not at all",
                )
        self._split[id(layer)] = layer
        return [each or dtensor.UNSHARDED for each in dimensions]


def deciding(patterns: Iterable[str], name: str) -> Optional[str]:
    """Returns the pattern of a layout that decides on a weight; None if none fits.

    Args:
        patterns: Of the layout.
        name: `layer/weight`.
    """
    fitting = [pattern for pattern in patterns if pattern == name or fnmatchcase(name, pattern)]
    return max(fitting, key=lambda pattern: (pattern == name, len(pattern), pattern), default=None)


@contextlib.contextmanager
def computable() -> Iterator[None]:
    """Says of an operation that DTensor cannot compute what it has to do with the declaration.

    Yields:
        Nothing.

    Raises:
        UserCodeError: There is one inside.
    """
    try:
        yield
    except tf.errors.OpError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = next((line for line in lines if "DTensor" in line or "layout" in line), lines[0] if lines else "")
        raise UserCodeError(
            f"{_OPTION}.layout: DTensor cannot compute the network: {said}",
            expected="operations that it has a rule for; batch normalisation and average pooling have none",
            todo="put tfx_estimator.model_fn.layers.StatelessDropout in place of Keras's Dropout"
            if "Stateful random" in said
            else f"remove the layer that has it, or {_OPTION}.layout; {_OPTION}.layers takes any",
        ) from error


class _Weight(dtensor.DVariable):
    """A variable on a mesh, which takes ordinary values as well, as from a checkpoint of another training."""

    def assign(self, value: Any, use_locking: Optional[bool] = None, name: Optional[str] = None, **kwargs: Any) -> Any:
        """See `tf.Variable.assign`."""
        if tf.executing_eagerly():
            value = tf.convert_to_tensor(value, self.dtype)
            if not dtensor.is_dtensor(value):
                whole = dtensor.Layout.replicated(self.layout.mesh, value.shape.rank)
                value = dtensor.relayout(dtensor.copy_to_mesh(value, whole), self.layout)
        return super().assign(value, use_locking, name, **kwargs)


def _devices(declared: ModelParallel) -> list[str]:
    """The devices of the mesh, by TensorFlow's names.

    Raises:
        DeclarationError: They are not there.
    """
    there = len(tf.config.list_physical_devices("GPU"))
    count = declared.mesh_size
    names = declared.devices or [f"{'gpu' if there >= count else 'cpu'}:{number}" for number in range(count)]
    wanted = max((int(each[4:]) + 1 for each in names if each.startswith("gpu:")), default=0)
    if wanted > there:
        raise DeclarationError(
            f"{_OPTION}.devices asks for gpu:{wanted - 1}",
            expected=f"devices of this machine, on which this process finds {there} GPUs, counted from 0",
            todo="name others, as cpu:0 and cpu:1",
        )
    return [each.upper() for each in names]
