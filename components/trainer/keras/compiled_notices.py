"""What is said of a compiled model of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

import tensorflow as tf

from tfx_estimator.model_fn.probabilities import assumed, mismatch
from tfx_estimator.pipeline.config.trainer import TrainerSection

# What is declared of the built-in loss and optimizer.
_BUILT_IN = ("trainer.optimizer", "trainer.label_smoothing", "trainer.class_weights")
# Of `compile`: how Keras's own fit would run the model's steps, which are steps of the declaration here.
_OF_FIT = ("jit_compile", "run_eagerly")


def compiled_notices(model: tf.keras.Model, section: TrainerSection, declared: Sequence[str]) -> list[str]:
    """Says what a compiled model brings, and what was declared in vain.

    Args:
        declared: Dotted paths of what the user wrote down himself.
    """
    loss = model.loss if isinstance(model.loss, str) else getattr(model.loss, "__name__", type(model.loss).__name__)
    own = f"optimizer, {type(model.optimizer).__name__}, and loss, {loss}"
    if metrics := _metrics(model):
        own += f", and evaluated by its metrics as well, {', '.join(metrics)}"
    said = [f"{section.model} returns a compiled model: it is trained by its own {own}"]
    if taken := assumed(model):
        said.append(
            f"the loss of {section.model}, {loss}, does not tell whether the model's outputs are logits or "
            f"probabilities: {taken}. A loss of tf.keras.losses with from_logits=… tells it"
        )
    if wrong := mismatch(model):
        said.append(f"the loss of {section.model}, {loss}, {wrong}")
    vain = [path for path in declared if any(path == each or path.startswith(f"{each}.") for each in _BUILT_IN)]
    if vain:
        verb = "has" if len(vain) == 1 else "have"
        said.append(f"{', '.join(vain)} {verb} no effect: the compiled model of {section.model} brings its own")
    said += [f"{key}=True has no effect, in the compile of {section.model}" for key in _OF_FIT if getattr(model, key)]
    if steps := _steps_per_execution(model):
        asynchronous = section.distribution.train.asynchronous
        instead = "" if asynchronous else "; trainer.steps_per_execution says how many steps one call does"
        said.append(f"steps_per_execution={steps} has no effect, in the compile of {section.model}{instead}")
    # Within one that scales the loss.
    if isinstance(getattr(model.optimizer, "inner_optimizer", model.optimizer), tf.keras.optimizers.Nadam):
        said.append(
            f"Nadam, in the compile of {section.model}, counts in Python how often TensorFlow has traced it, where "
            "steps were to be counted: a training that goes on from a checkpoint may come to other weights. "
            "tf.keras.optimizers.legacy.Nadam counts steps"
        )
    return said


def _metrics(model: tf.keras.Model) -> list[str]:
    """Names those of `compile`, which Keras makes with the first batch; then those of `add_metric` and of its steps."""
    declared = model.compiled_metrics
    given = [declared._user_metrics, declared._user_weighted_metrics] if declared is not None else []
    compiled = [_name(each) for each in tf.nest.flatten(given) if each is not None]
    # Those of `compile` are among these, once they are made; and the mean of the loss is one to Keras.
    made = {id(each) for each in (declared.metrics if declared is not None else ())}
    others = [_name(each) for each in model.metrics if id(each) not in made]
    return list(dict.fromkeys([*compiled, *(name for name in others if name != "loss")]))


def _name(metric: Any) -> str:
    """Of a metric as `compile` takes it: its name, a function, or an object."""
    if isinstance(metric, str):
        return metric
    return str(getattr(metric, "name", None) or getattr(metric, "__name__", type(metric).__name__))


def _steps_per_execution(model: tf.keras.Model) -> Optional[Union[int, str]]:
    """What `compile` was given; None where it is Keras's own one step."""
    if model.autotune_steps_per_execution:
        return "'auto'"
    steps = 1 if model.steps_per_execution is None else int(model.steps_per_execution.numpy())
    return steps if steps > 1 else None
