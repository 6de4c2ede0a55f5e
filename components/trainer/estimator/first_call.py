"""Calls a network function outside of the Estimator's graph first, to check the network and to keep its weights."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer import seeds
from tfx_estimator.components.trainer.patch import Patch
from tfx_estimator.components.trainer.task.user_code import call_network
from tfx_estimator.model_fn.user_models.checks import refuse_own_methods
from tfx_estimator.model_fn.user_models.freezing import freeze
from tfx_estimator.model_fn.user_models.given_weights import GivenWeights, keep, watching
from tfx_estimator.model_fn.user_models.keras_model import build, is_compiled, require_trainable
from tfx_estimator.model_fn.user_models.probabilities import refuse_probabilities
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.base.stack import keras2
from tfx_estimator.pipeline.config.trainer import TrainerSection

# Per thread: each replica calls the function in a thread of its own.
_LOADED = contextvars.ContextVar("loaded", default=False)
_PROJECT = __name__.partition(".")[0]

logger = get_logger("trainer")


@dataclass(frozen=True)
class FirstCall:
    """The result of the first call: its failure, or the weights that the function loaded, if any."""

    failure: Optional[Exception] = None
    given: Optional[GivenWeights] = None


def call_again(function: Callable, num_classes: int, params: Mapping[str, Any], first: FirstCall) -> Any:
    """Calls the function in the Estimator's graph; arguments as of `call_network`."""
    failure = first.failure
    with _loaded_before() if first.given else contextlib.nullcontext():
        model = call_network(function, num_classes, params)
    if failure is not None and isinstance(model, tf.keras.Model) and _was_loaded(model):
        raise UserCodeError(
            "trainer.model: the function loads weights, and runs only inside an Estimator's graph, where they are "
            f"lost; outside of a graph it fails: {type(failure).__name__}: {failure}",
            expected="a function that can be called outside of a graph too",
            todo="fix that failure; or declare trainer.warm_start instead of loading weights",
        ) from failure
    refuse_compiled(model)
    refuse_own_methods(model)
    return model


def refuse_compiled(model: Any) -> None:
    """Refuses a compiled Keras model."""
    if isinstance(model, tf.keras.Model) and is_compiled(model):
        raise UserCodeError(
            "trainer.model: the function returns a compiled Keras model, which trainer.path: estimator does not train",
            expected="a network that is not compiled; the declared optimizer and loss train it",
            todo="set trainer.path: keras, which trains a compiled model as it is; return it without compile, as "
            "load_model(path, compile=False) does; or name a trainer.module_file whose trainer_fn makes the Estimator "
            "with tf.keras.estimator.model_to_estimator",
        )


def _was_loaded(model: tf.keras.Model) -> bool:
    """True if Keras has written weights in its own session."""
    weights = [
        each for layer in model._flatten_layers() for each in (*layer._trainable_weights, *layer._non_trainable_weights)
    ]
    return any(hasattr(each, "_assign_placeholder") for each in weights)


def call_first(function: Callable, section: TrainerSection, num_classes: int, spec: Mapping[str, Any]) -> FirstCall:
    """Calls the function that `trainer.model` names, and checks its network as the Keras paths do."""
    # Built-in networks need no check.
    if function.__module__.startswith(f"{_PROJECT}."):
        return FirstCall()
    seeds.begin(section)
    # On the CPU: the Estimator's session takes the GPU's memory, with options of its own.
    with tf.device("/cpu:0"):
        try:
            with watching() as made:
                model = _computed(lambda: call_network(function, num_classes, section.params))
        except Exception as error:
            # A network may need the graph in which it is called next; a real error is raised again there.
            logger.debug(f"{function.__module__}.{function.__name__} fails outside of a graph", exc_info=True)
            return FirstCall(failure=error)
        if not isinstance(model, tf.keras.Model):
            return FirstCall()
        return FirstCall(given=_check(model, made.changed(), spec, section.freeze))


def _computed(compute: Callable[[], Any]) -> Any:
    """Computes on the CPU, or on a GPU what a CPU cannot compute, such as convolutions with channels first."""
    try:
        return compute()
    except Exception:
        if not tf.config.list_logical_devices("GPU"):
            raise
    with tf.device(None):
        return compute()


def _check(
    network: tf.keras.Model, changed: set[int], spec: Mapping[str, Any], patterns: Sequence[str]
) -> Optional[GivenWeights]:
    """Checks a network as the Keras paths do, and keeps the weights that were loaded into it."""
    refuse_compiled(network)
    refuse_own_methods(network)
    try:
        outputs = _computed(lambda: build(network, spec))
    except Exception:
        # It may need the graph, as the function may; but loaded weights could not be recognised there.
        if changed:
            raise
        logger.debug(f"{network.name} cannot be called outside of a graph", exc_info=True)
        return None
    refuse_probabilities(network, outputs)
    # Before they are kept, in the order that they will have.
    freeze(network, patterns)
    require_trainable(network)
    return keep(network, changed)


@contextlib.contextmanager
def _loaded_before() -> Iterator[None]:
    """Stops Keras from writing weights while the function is called in a graph: they are the initial values anyway."""
    _PATCH.apply()
    token = _LOADED.set(True)
    try:
        yield
    except tf.errors.OpError as error:
        raise UserCodeError(
            "trainer.model: the function loads weights in a way that fails in an Estimator's graph: "
            f"{type(error).__name__}: {error.message.splitlines()[0] if error.message else error}",
            expected="set_weights, or load_weights of a file that ends with .h5",
            todo="load them that way; or set trainer.path: keras; or declare trainer.warm_start instead of loading",
        ) from error
    finally:
        _LOADED.reset(token)


def _set_outside_of_a_graph(original: Any, tuples: Any) -> None:
    if tf.executing_eagerly() or not _LOADED.get():
        original(tuples)


_PATCH = Patch(
    f"{keras2.NAME}.src.backend:batch_set_value",
    _set_outside_of_a_graph,
    reason="in an Estimator's graph Keras writes weights in a session of its own, not the one that trains; with "
    "parameter servers it cannot open one, and under central_storage it cannot write",
    until="there is no tf.estimator",
)
