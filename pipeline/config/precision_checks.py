"""Checks of `trainer.precision`: what it is for, and what it goes ill with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.whole_model_fn import find_own

_STRATEGY = "trainer.distribution.train.strategy"
_PARTITIONER = "trainer.distribution.train.variable_partitioner"


def check_precision(declaration: Declaration, search_paths: Sequence[str]) -> Iterator[Problem]:
    """Checks the precision.

    A compiled model is known when it is made: it is refused then.

    Args:
        declaration: Typed values.
        search_paths: Folders where the user's modules are looked for before `sys.path`.

    Yields:
        The problems.
    """
    trainer = declaration.trainer
    if trainer.precision == "float32":
        return
    if whose := find_own(trainer, search_paths):
        yield _problem(
            trainer.precision,
            f"{whose} makes its network by itself, in a precision of its own",
            "float32; or trainer.model with a function that returns the network",
            "remove it, and call tf.keras.mixed_precision.set_global_policy in your code",
            "trainer.module_file",
            "trainer.model",
        )
    train = trainer.distribution.train
    if trainer.precision == "mixed_float16" and trainer.sync_every:
        yield _problem(
            trainer.precision,
            "in float16 the loss is scaled, and with trainer.sync_every each worker would change the scale, and skip "
            "steps, by itself",
            "mixed_bfloat16 or float32 with it",
            "choose one of them, or remove trainer.sync_every",
            "trainer.sync_every",
        )
    if trainer.precision == "mixed_float16" and train.asynchronous:
        yield _problem(
            trainer.precision,
            f"in float16 the loss is scaled, and under {train.strategy} each worker would change the scale under the "
            "others' steps",
            "mixed_bfloat16 or float32 with it",
            "choose one of them, or another strategy",
            _STRATEGY,
        )
    elif train.variable_partitioner is not None and not whose:
        yield _problem(
            trainer.precision,
            "Keras casts each variable of a layer to 16 bits, and cannot cast one that a partitioner has cut",
            "float32 with a variable_partitioner",
            f"remove one of them: trainer.precision or {_PARTITIONER}",
            _PARTITIONER,
        )
    elif trainer.precision == "mixed_float16" and train.takes("tpu"):
        yield _problem(
            trainer.precision, "a TPU has no float16", "mixed_bfloat16 or float32 on a TPU", "choose one", _STRATEGY
        )


def _problem(value: str, what: str, expected: str, todo: str, *depends: str) -> Problem:
    return Problem("trainer.precision", what, expected, todo, value=value, depends=depends)
