"""Whether a model_fn trains under several replicas as on one device."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np

from tfx_estimator.model_fn.bridge import fresh
from tfx_estimator.pipeline.config.strategies import ONE_DEVICE
from tfx_estimator.pipeline.testing.arrays import given_or_made_up
from tfx_estimator.pipeline.testing.folders import new_folder


def same_under(
    strategies: Sequence[str],
    model_fn: Any,
    params: Optional[Mapping[str, Any]] = None,
    *,
    shape: Sequence[int] = (28, 28, 1),
    classes: int = 10,
    examples: int = 32,
    steps: int = 5,
    tolerance: float = 1e-5,
    features: Any = None,
    labels: Any = None,
) -> dict[str, float]:
    """Trains from the same weights on one device and under each strategy, and compares all variables.

    Each replica takes its part of a batch. It finds a loss that is summed or averaged twice, an optimizer that adds up
    no gradients, and statistics of a batch that each replica computes of its own part.

    Args:
        strategies: As in a declaration: `mirrored:2` has two replicas; those of one machine, on logical CPUs.
        model_fn: A function of a module that can be imported, without randomness such as dropout.
        params: The model_fn's own.
        shape, classes, examples, features, labels: A batch, as of `call_model_fn`; a multiple of the replicas.
        steps: Number of training steps.
        tolerance: Largest allowed difference of a variable.

    Returns:
        The largest difference under each strategy.

    Raises:
        AssertionError: A difference is larger.
    """
    __tracebackhide__ = True
    features, labels = given_or_made_up(features, labels, shape, classes, examples)
    name = getattr(model_fn, "__qualname__", "<locals>")
    assert "<locals>" not in name, "the model_fn must be a function of a module, which a fresh process imports"
    place = model_fn.__module__, name
    request = place, params, features, labels, [ONE_DEVICE, *strategies], steps, new_folder("same_under")
    command = fresh.python(fresh.program(__name__, train.__name__))
    one, *others = fresh.ask(command, request, is_keras_3=False).values()
    largest = {}
    for strategy, variables in zip(strategies, others):
        shared = variables.keys() & one.keys()
        apart = {name: float(np.max(np.abs(variables[name] - one[name]), initial=0.0)) for name in sorted(shared)}
        largest[strategy] = max(apart.values())
        wrong = {name: each for name, each in apart.items() if not each <= tolerance}
        shown = ", ".join(f"{name} is {each:.2g}" for name, each in wrong.items())
        assert not wrong, f"after {steps} steps under {strategy}, {shown} apart from one device, expected {tolerance:g}"
    return largest


def train(request: Any) -> dict[str, dict[str, np.ndarray]]:
    """Returns the variables after a training under each strategy; runs in a fresh process, which has more devices."""
    import tensorflow as tf

    from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
    from tfx_estimator.model_fn.parallel.strategies import configure_devices, make_strategy
    from tfx_estimator.pipeline.config.distribution import Distribution
    from tfx_estimator.pipeline.testing.model_fns import estimator_of

    bring_back_estimator()
    (module, name), params, features, labels, strategies, steps, folder = request
    model_fn = operator.attrgetter(name)(importlib.import_module(module))
    sections = [Distribution.parse_obj({"train": each}).train for each in strategies]
    configure_devices(*sections)

    def estimator(place: str, strategy: Any = None, weights: Optional[str] = None) -> Any:
        config = tf.estimator.RunConfig(f"{folder}/{place}", tf_random_seed=1, train_distribute=strategy)
        return estimator_of(model_fn, params, config, weights)

    def batches(replicas: int) -> tf.data.Dataset:
        # An Estimator's input_fn makes the batches of a replica.
        data = tf.data.Dataset.from_tensor_slices((features, labels)).repeat()
        return data.batch(len(tf.nest.flatten(features)[0]) // replicas, drop_remainder=True)

    # Replicas create operations in another order, and so would draw other weights.
    estimator("begun").train(lambda: batches(1), steps=1)
    found = {}
    for place, section in zip(strategies, sections):
        trained = estimator(place, make_strategy(section), f"{folder}/begun")
        trained.train(lambda: batches(section.replicas), steps=steps)  # noqa: B023
        names = [each for each in trained.get_variable_names() if each != tf.compat.v1.GraphKeys.GLOBAL_STEP]
        found[place] = {each: trained.get_variable_value(each) for each in names}
    return found
