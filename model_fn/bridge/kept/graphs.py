"""Calls an Estimator's model_fn in a graph of its own, whose inputs are placeholders."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.bridge.kept import inputs, seeds
from tfx_estimator.model_fn.bridge.kept.optimizers import Applied, recorded
from tfx_estimator.model_fn.bridge.kept.reach import ancestors, of_process
from tfx_estimator.model_fn.bridge.steps import CONFIG, require_shapes
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.text import first_line

TRAIN, EVAL, PREDICT = "train", "eval", "infer"
_V1 = tf.compat.v1
# What loading a graph needs; others, such as train_op, may name what it cannot find.
_COLLECTIONS = (
    _V1.GraphKeys.GLOBAL_VARIABLES,
    _V1.GraphKeys.LOCAL_VARIABLES,
    _V1.GraphKeys.TRAINABLE_VARIABLES,
    _V1.GraphKeys.ASSET_FILEPATHS,
)


@dataclasses.dataclass(frozen=True)
class Called:
    """A model_fn's graph in one mode.

    Args:
        inputs: Dense placeholders of features and labels, by name.
        update: In evaluation, the operation that adds a batch to the metrics.
        metrics: In evaluation, the metrics with the loss and the step, by name.
        left_out: Metrics that a new process cannot compute.
        receiver: In prediction, the features and the tensors that are served for them, as of a
            serving_input_receiver_fn.
    """

    graph: tf.Graph
    mode: str
    inputs: dict[str, tf.Tensor]
    spec: Any
    applied: list[Applied]
    update: Any = None
    metrics: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    left_out: list[str] = dataclasses.field(default_factory=list)
    receiver: Any = None

    def taken(self, roots: Any) -> dict[str, tf.Tensor]:
        """Returns the placeholders that these depend on."""
        reached = ancestors(roots)
        return {name: each for name, each in self.inputs.items() if each.op in reached}

    def require_portable(self, *roots: Any) -> None:
        """Refuses what depends on this process."""
        if found := of_process(self.graph, roots):
            raise UserCodeError(
                f"the graph of the model_fn in mode {self.mode} has a {found}, which works in the process that made it",
                expected="TensorFlow's operations, and data that come from the input_fn",
                todo="take it out of the loss, and of what a step changes",
            )

    def finish(self) -> None:
        """Finalizes the scaffold as a session would; operations can still be added."""
        with self.graph.as_default():
            self.spec.scaffold.finalize()
        self.graph._unsafe_unfinalize()

    def drop_collections(self) -> None:
        """Removes the collections that a SavedModel must not have."""
        for name in self.graph.get_all_collection_keys():
            if name not in _COLLECTIONS:
                self.graph.clear_collection(name)


@contextlib.contextmanager
def resource_variables() -> Iterator[None]:
    """Makes resource variables the default: others cannot be kept."""
    was_enabled = _V1.resource_variables_enabled()
    _V1.enable_resource_variables()
    try:
        yield
    finally:
        if not was_enabled:
            _V1.disable_resource_variables()


def call(estimator: Any, types: Any, mode: str, receiver_fn: Optional[Callable[[], Any]] = None) -> Called:
    """Calls the model_fn like the Estimator."""
    if mode == PREDICT and receiver_fn is None:
        # An export takes any number of examples; some model_fns need the input_fn's.
        with contextlib.suppress(Exception):
            return _call(estimator, types, mode, is_any_size=True)
    return _call(estimator, types, mode, receiver_fn=receiver_fn)


def _call(estimator: Any, types: Any, mode: str, is_any_size: bool = False, receiver_fn: Any = None) -> Called:
    with tf.Graph().as_default() as graph, resource_variables(), seeds.fixed(), recorded(graph) as applied:
        _V1.set_random_seed(estimator.config.tf_random_seed)
        estimator._create_and_assert_global_step(graph)
        if receiver_fn is None:
            (features, labels), given = inputs.placeholders(types, is_any_size)
            is_ragged = any(isinstance(each, tf.RaggedTensor) for each in tf.nest.flatten(features))
            receiver = SimpleNamespace(features=features, receiver_tensors=given if is_ragged else features)
        else:
            receiver, labels, given = receiver_fn(), None, dict[str, tf.Tensor]()
            features = receiver.features
        if mode == EVAL:
            called = _call_eval(estimator, features, labels, graph, given)
        else:
            batch = [features, None if mode == PREDICT else labels]
            if mode == TRAIN:
                # A TPUEstimator takes what no input_fn precedes for an export, and gives it no batch size.
                *batch, _ = estimator._get_features_and_labels_from_input_fn(lambda params=None: tuple(batch), mode)
            spec = estimator.model_fn(*batch, mode, estimator.config)
            called = Called(graph, mode, given, spec, applied, receiver=receiver)
            _step_last(_V1.train.get_global_step())
        for each in _V1.global_variables():
            if not _is_resource(each):
                raise UserCodeError(
                    f"{each.op.name} of the model_fn is a reference variable, which cannot be kept",
                    expected="resource variables, as TensorFlow makes them today",
                    todo="leave out its use_resource=False",
                )
    return called


def _step_last(step: Any) -> None:
    """Lets a graph read the global step before it adds to it: a rate that decays may else be the next step's."""
    users = step.handle.consumers() if _is_resource(step) else ()
    # What is within a tf.cond may not run.
    reads = [each for each in users if each.type == "ReadVariableOp" and not each._get_control_flow_context()]
    for write in (each for each in users if each.type.startswith("Assign")):
        write._add_control_inputs([each for each in reads if write not in ancestors([each])])


def _call_eval(estimator: Any, features: Any, labels: Any, graph: tf.Graph, given: dict[str, tf.Tensor]) -> Called:
    """Calls the model_fn like `Estimator.evaluate`, which adds the loss to the metrics."""
    specs, left_out = [], list[str]()

    def portable(*args: Any) -> Any:
        spec = estimator._call_model_fn(*args)
        metrics = spec.eval_metric_ops or {}
        alien = [name for name, each in metrics.items() if isinstance(each, tuple) and of_process(graph, each)]
        left_out.extend(f"the metric {name}" for name in alien)
        specs.append(spec)
        return spec._replace(eval_metric_ops={name: each for name, each in metrics.items() if name not in alien})

    copied = copy.copy(estimator)
    copied._call_model_fn = portable
    *_, update, metrics = copied._call_model_fn_eval(lambda params=None: (features, labels), estimator.config)
    metrics = {**metrics, _V1.GraphKeys.GLOBAL_STEP: _V1.train.get_global_step()}
    return Called(graph, EVAL, given, specs[0], [], update, metrics, left_out)


@contextlib.contextmanager
def opened(called: Called, checkpoint: str) -> Iterator[tf.compat.v1.Session]:
    """Opens a session, restored as the Estimator restores it: by the scaffold. Operations can still be added."""
    scaffold = called.spec.scaffold
    called.finish()
    with called.graph.as_default():
        try:
            require_shapes(checkpoint)
            given = {"checkpoint_filename_with_path": checkpoint, "config": CONFIG}
            session = _V1.train.ChiefSessionCreator(scaffold, **given).create_session()
        except (tf.errors.OpError, ValueError, RuntimeError) as error:
            raise UserCodeError(
                f"the checkpoint {checkpoint} is not of this model_fn, or damaged: {first_line(error)}",
                expected="the code that trained it, and its .index and .data files as they were written",
                todo="name the Estimator's own model_dir",
            ) from error
        called.graph._unsafe_unfinalize()
        with session:
            yield session


def places(called: Called) -> dict[tuple[str, str], Any]:
    """Returns the variables that the Estimator restores, by name in the checkpoint and slice."""
    given, found = called.spec.scaffold.saver._var_list, {}
    for name, each in given.items() if isinstance(given, dict) else ((None, each) for each in given):
        for part in each if isinstance(each, (list, tuple)) else getattr(each, "_variable_list", [each]):
            if _is_resource(part):
                info = part._save_slice_info
                found[name or (info.full_name if info else part.op.name), info.spec if info else ""] = part
    return found


def _is_resource(variable: Any) -> bool:
    return getattr(getattr(variable, "handle", None), "dtype", None) == tf.resource
