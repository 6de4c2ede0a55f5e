"""Has a run_fn find the declared strategy: as the current one, and where it makes one that names no devices.

TFX's own module files make a `MirroredStrategy()`, which in a cluster TensorFlow refuses; TensorFlow's guide to several
workers makes a `MultiWorkerMirroredStrategy()`, of which a process should have one; others ask for
`tf.distribute.get_strategy()`, or know of no strategy at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.patch import Patch

_UNTIL = "tf.distribute takes its strategy from outside of the code that trains"


@contextlib.contextmanager
def declared(strategy: Optional[tf.distribute.Strategy], notice: Callable[[str], None]) -> Iterator[None]:
    """Has the code inside train under a strategy. For a process of its own: it changes TensorFlow's classes for good.

    `MirroredStrategy()` and `MultiWorkerMirroredStrategy(…)` are then this strategy. A strategy that is made with
    devices of its own, or of another class, is what it says: the declared one is the current one no longer, for
    TensorFlow mixes no two.

    Args:
        strategy: The declared one; None changes nothing.
        notice: Is told if the code makes a strategy of its own.
    """
    if strategy is None:
        yield
        return
    scope = contextlib.ExitStack()
    scope.enter_context(strategy.scope())

    def give_way(made: Any) -> None:
        # TensorFlow makes its default strategy by itself, and what stands in for a strategy in a graph.
        if type(made).__name__.startswith("_Default") or tf.distribute.get_strategy() is not strategy:
            return
        scope.close()
        notice(
            f"the run_fn makes a strategy of its own, {type(made).__name__}, and trains by that: the declared one is "
            "not used. tf.distribute.get_strategy(), or MirroredStrategy() without devices, would be the declared one"
        )

    for patch in _patches(strategy, give_way):
        patch.apply()
    with scope:
        yield


def _patches(declared: tf.distribute.Strategy, give_way: Callable[[Any], None]) -> Iterator[Patch]:
    def make(original: Any, cls: type, *args: Any, **kwargs: Any) -> Any:
        return original(cls) if _devices(cls, args, kwargs) else declared

    def set_up(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        # Python calls it for what `make` returned as well.
        if self is not declared:
            original(self, *args, **kwargs)

    def note(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        give_way(self)

    reason = "code that makes its own strategy cannot be given one: it trains by another one than was declared"
    distribute = "tensorflow.python.distribute"
    for name in ("mirrored_strategy:MirroredStrategy", "collective_all_reduce_strategy:CollectiveAllReduceStrategy"):
        yield Patch(f"{distribute}.{name}.__new__", make, reason, _UNTIL)
        yield Patch(f"{distribute}.{name}.__init__", set_up, reason, _UNTIL)
    yield Patch(
        f"{distribute}.input_ops:auto_shard_dataset",
        _by_examples,
        reason="TensorFlow gives each worker files of its own, and fails if there are fewer than workers, as of TFX's "
        "Transform; with enough files a step's examples are others than on one device",
        until=_UNTIL,
    )
    reason = "TensorFlow refuses to enter the scope of a strategy inside of that of another one"
    yield Patch(f"{distribute}.distribute_lib:StrategyBase.__init__", note, reason, _UNTIL)


def _by_examples(original: Any, dataset: Any, num_shards: int, index: int, *args: Any, **kwargs: Any) -> Any:
    """Has each worker take its part of each batch, unless the dataset says otherwise."""
    policy = tf.data.experimental.AutoShardPolicy
    if isinstance(dataset, tf.data.Dataset) and num_shards > 1:
        options = tf.data.Options()
        if dataset.options().experimental_distribute.auto_shard_policy == policy.AUTO:
            options.experimental_distribute.auto_shard_policy = policy.DATA
            dataset = dataset.with_options(options)
    return original(dataset, num_shards, index, *args, **kwargs)


def _devices(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a MirroredStrategy is told to train on; a MultiWorkerMirroredStrategy takes no devices."""
    return issubclass(cls, tf.distribute.MirroredStrategy) and (args[0] if args else kwargs.get("devices"))
