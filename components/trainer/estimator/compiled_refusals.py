"""Which compiled models of the user's an Estimator cannot train as Keras does: each is refused, and why is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.compiled_checks import check_compiled
from tfx_estimator.model_fn.keras_model import is_subclassed, output_names, reductions, require_trainable
from tfx_estimator.model_fn.keras_optimizers import given_rate
from tfx_estimator.model_fn.own_methods import own_methods
from tfx_estimator.pipeline.config.distribution import Distribution, TrainStrategy
from tfx_estimator.pipeline.errors import UserCodeError

# What Keras's own conversion of an optimizer drops without a word.
_DROPPED = ("weight_decay",)
_KERAS = "set trainer.path: keras, which trains it as it is"
_Legacy = tf.keras.optimizers.legacy.Optimizer
_Schedule = tf.keras.optimizers.schedules.LearningRateSchedule


@dataclass(frozen=True)
class _Compiled:
    """What is looked at.

    Args:
        model: Compiled, and built.
        target: `trainer.model`.
        train: The declared strategy of training.
    """

    model: tf.keras.Model
    target: str
    train: TrainStrategy

    @property
    def optimizer(self) -> Any:
        """The model's."""
        return self.model.optimizer


def refuse_model(
    model: tf.keras.Model, distribution: Distribution, target: str, precision: str, num_classes: int = 0
) -> None:
    """Refuses a compiled model that an Estimator cannot train, or would train into another one.

    Args:
        model: Compiled, and built.
        distribution: As declared.
        target: `trainer.model`.
        precision: As declared.
        num_classes: Of the data; 0 where that is not known.

    Raises:
        UserCodeError: It is one.
    """
    check_compiled(model, target, distribution, precision, num_classes=num_classes)
    for refuse in _REFUSALS:
        refuse(_Compiled(model, target, distribution.train))


def refusal(target: str, what: str, expected: str, todo: str = "") -> UserCodeError:
    """Returns the error of a compiled model that an Estimator cannot train.

    Args:
        target: `trainer.model`.
        what: Is wrong with it: what follows "returns a compiled model".
        expected: In its place.
        todo: What helps beside training it on the Keras path.
    """
    return UserCodeError(
        f"trainer.model: {target!r} returns a compiled model{what}",
        expected=expected,
        todo=f"{todo}; or {_KERAS}" if todo else _KERAS,
    )


def own_schedule(optimizer: Any) -> dict[str, type]:
    """Returns the class of an optimizer's schedule by its name, as Keras needs it to make a copy.

    Args:
        optimizer: Of a compiled model; without a schedule nothing is returned.
    """
    rate = given_rate(optimizer)
    return {type(rate).__name__: type(rate)} if isinstance(rate, _Schedule) else {}


def _refuse_class_of_its_own(given: _Compiled) -> None:
    if is_subclassed(given.model):
        raise refusal(
            given.target,
            f" of a class of its own, {type(given.model).__name__}, which TensorFlow cannot copy into an Estimator's "
            "graph with its weights",
            expected="a functional model or a Sequential; or, not compiled, any network",
        )


def _refuse_steps_of_its_own(given: _Compiled) -> None:
    # model_to_estimator knows nothing of them.
    if own := own_methods(given.model):
        raise refusal(
            given.target,
            f" with a {' and a '.join(own)} of its own, which an Estimator would never call",
            expected="a model that trains as Keras's own do",
        )


def _refuse_fixed_training(given: _Compiled) -> None:
    told = next(_told_otherwise(given.model), None)
    if told is not None:
        layer, default = told
        raise refusal(
            given.target,
            f" with a layer, {layer.name} ({type(layer).__name__}), whose call has training={default}: an Estimator's "
            "copy would call it so, in training and in evaluations",
            expected="a call with training=None, which is passed on to Keras's own layers: those find out; or, not "
            "compiled, any network",
        )


def _told_otherwise(model: tf.keras.Model) -> Iterator[tuple[tf.keras.layers.Layer, bool]]:
    """The layers that a functional model calls by a `training` of their own, where Keras says if it is training."""
    for layer in model.layers:
        if isinstance(layer, tf.keras.Model) and not is_subclassed(layer):
            yield from _told_otherwise(layer)
        else:
            default = layer._call_spec.default_training_arg
            given = [node.call_kwargs.get("training") for node in layer._inbound_nodes]
            if default is not None and None in given:
                yield layer, default


def _refuse_untrainable(given: _Compiled) -> None:
    require_trainable(given.model)


def _refuse_strategy(given: _Compiled) -> None:
    if given.train.asynchronous or given.train.takes("tpu"):
        raise refusal(
            given.target,
            f", and a Keras optimizer in an Estimator cannot train under {given.train.strategy}",
            expected="one_device, mirrored, central_storage or multi_worker_mirrored",
            todo="choose one of them",
        )


def _refuse_loss_of_each_example(given: _Compiled) -> None:
    if "none" in reductions(given.model):
        raise refusal(
            given.target,
            " whose loss has reduction='none', a number for each example, and an Estimator trains by one number",
            expected="a loss with another reduction: 'sum_over_batch_size', the default, or 'sum'",
            todo="choose one of them",
        )


def _refuse_names_of_outputs(given: _Compiled) -> None:
    model, options = given.model, given.model._get_compile_args()
    names = ("loss", "loss_weights", "metrics", "weighted_metrics")
    by_key = [name for name in names if isinstance(options[name], dict)]
    if by_key and isinstance(model.output, Mapping) and output_names(model, 0) != model.output_names:
        keys = sorted(model.output)
        raise refusal(
            given.target,
            f" of a dict of outputs, {', '.join(keys)}, whose layers are {', '.join(model.output_names)}: an Estimator "
            f"would look for these in {by_key[0]}",
            expected="layers that are named as the outputs are",
            todo=f"name them so, Dense(..., name={keys[0]!r})",
        )


def _refuse_optimizer_without_legacy(given: _Compiled) -> None:
    """Refuses what has no equal among the legacy optimizers, which model_to_estimator makes of all others."""
    dropped = [name for name in _DROPPED if getattr(given.optimizer, name, None)]
    named = type(given.optimizer).__name__
    known = hasattr(tf.keras.optimizers.legacy, named)
    if not isinstance(given.optimizer, _Legacy) and (dropped or not known):
        what = f"{named}'s {' and '.join(dropped)}" if known else f"the optimizer {named}"
        raise refusal(
            given.target,
            f", and an Estimator cannot have {what}",
            expected="an optimizer that tf.keras.optimizers.legacy has, without them",
            todo="compile the model with another one",
        )


def _refuse_schedule_without_copy(given: _Compiled) -> None:
    optimizer = given.optimizer
    for name, kind in own_schedule(optimizer).items():
        try:
            # As model_to_estimator does it.
            with tf.keras.utils.custom_object_scope({name: kind}):
                convert = tf.keras.__internal__.optimizers.convert_to_legacy_optimizer
                made = optimizer if isinstance(optimizer, _Legacy) else convert(optimizer)
                type(made).from_config(made.get_config())
        except Exception as error:
            raise refusal(
                given.target,
                f", and an Estimator cannot copy the schedule of its learning rate, {name}, into its graph: "
                f"{type(error).__name__}: {error}",
                expected=f"a get_config of {name} that returns the arguments of its __init__, as numbers",
                todo="define it",
            ) from error


def _refuse_another_rmsprop(given: _Compiled) -> None:
    if isinstance(given.optimizer, tf.keras.optimizers.RMSprop) and not given.optimizer.momentum:
        raise refusal(
            given.target,
            ", and in an Estimator tf.keras.optimizers.RMSprop without momentum becomes that of "
            "tf.keras.optimizers.legacy, which adds epsilon outside of the root: it would train another model",
            expected="tf.keras.optimizers.legacy.RMSprop, which is the same on every path; or one with momentum",
            todo="compile the model with it",
        )


def _refuse_another_nadam(given: _Compiled) -> None:
    if isinstance(given.optimizer, tf.keras.optimizers.Nadam):
        raise refusal(
            given.target,
            ", and in an Estimator tf.keras.optimizers.Nadam becomes that of tf.keras.optimizers.legacy, which counts "
            "steps where the other one counts how often it was traced: it would train another model",
            expected="tf.keras.optimizers.legacy.Nadam, which is the same on every path",
            todo="compile the model with it",
        )


# In this order: of several that apply, the first is told.
_REFUSALS: tuple[Callable[[_Compiled], None], ...] = (
    _refuse_class_of_its_own,
    _refuse_steps_of_its_own,
    _refuse_fixed_training,
    _refuse_untrainable,
    _refuse_strategy,
    _refuse_loss_of_each_example,
    _refuse_names_of_outputs,
    _refuse_optimizer_without_legacy,
    _refuse_schedule_without_copy,
    _refuse_another_rmsprop,
    _refuse_another_nadam,
)
