"""Whether a model_fn trains under several replicas as on one device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge import fresh
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
from tfx_estimator.pipeline.config.strategies import ONE_DEVICE
from tfx_estimator.pipeline.testing import new_folder
from tfx_estimator.pipeline.testing.model_fns import Batch, estimator_of, make_batch

if TYPE_CHECKING:
    from typing_extensions import Unpack

# The fresh process reads the model_fn before it calls `train`.
bring_back_estimator()


def same_under(
    strategies: Sequence[str],
    model_fn: Any,
    params: Any = None,
    *,
    steps: int = 5,
    tolerance: float = 1e-5,
    **batch: Unpack[Batch],
) -> dict[str, float]:
    """Trains from the same weights on one device and under each strategy, and compares all variables.

    Each replica takes its part of a batch. It finds a loss that is summed or averaged twice, an optimizer that adds up
    no gradients, and statistics of a batch that each replica computes of its own part.

    Args:
        strategies: As in a declaration: `mirrored:2` has two replicas; those of one machine, on logical CPUs.
        model_fn: A function of a module that can be imported, without randomness such as dropout.
        params: A dict, if the model_fn takes it.
        tolerance: Largest allowed difference of a variable.
        batch: A `Batch`: features, labels, shape, classes, examples; their number is a multiple of the replicas.

    Returns:
        The largest difference under each strategy.

    Raises:
        AssertionError: A difference is larger.
    """
    __tracebackhide__ = True
    is_found = "<locals>" not in getattr(model_fn, "__qualname__", "<locals>")
    assert is_found, "the model_fn must be a function of a module, which a fresh process imports"
    request = model_fn, params, make_batch(**batch), [ONE_DEVICE, *strategies], steps, new_folder("same_under")
    command = fresh.python(fresh.program(__name__, train.__name__))
    one, *others = fresh.ask(command, request, is_keras_3=False).values()
    largest = {}
    for strategy, variables in zip(strategies, others):
        shared = sorted(variables.keys() & one.keys())
        apart = {name: float(np.max(np.abs(variables[name] - one[name]), initial=0.0)) for name in shared}
        largest[strategy] = max(apart.values())
        wrong = ", ".join(f"{name} is {each:.2g}" for name, each in apart.items() if not each <= tolerance)
        assert not wrong, f"after {steps} steps under {strategy}, {wrong} apart from one device, expected {tolerance:g}"
    return largest


def train(request: Any) -> dict[str, dict[str, np.ndarray]]:
    """Returns the variables after a training under each strategy; runs in a fresh process, which has more devices."""
    from tfx_estimator.model_fn.parallel.strategies import configure_devices, make_strategy
    from tfx_estimator.pipeline.config.distribution import Distribution

    model_fn, params, given, strategies, steps, folder = request
    sections = {each: Distribution.parse_obj({"train": each}).train for each in strategies}
    configure_devices(*sections.values())

    def trained(place: str, steps: int, section: Any = None, weights: Optional[str] = None) -> Any:
        strategy = section and make_strategy(section)
        config = tf.estimator.RunConfig(f"{folder}/{place}", tf_random_seed=1, train_distribute=strategy)
        # An Estimator's input_fn makes the batches of a replica.
        size = len(tf.nest.flatten(given[0])[0]) // (section.replicas if section else 1)
        data = functools.partial(tf.data.Dataset.from_tensor_slices, given)
        estimator = estimator_of(model_fn, params, config, weights)
        return estimator.train(lambda: data().repeat().batch(size, drop_remainder=True), steps=steps)

    # Replicas create operations in another order, and so would draw other weights.
    trained("begun", 1)
    found = {}
    for place, section in sections.items():
        estimator = trained(place, steps, section, f"{folder}/begun")
        names = [each for each in estimator.get_variable_names() if each != tf.compat.v1.GraphKeys.GLOBAL_STEP]
        found[place] = {each: estimator.get_variable_value(each) for each in names}
    return found
