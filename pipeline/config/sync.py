"""The section `trainer.sync_every`: processes that train by themselves, and average their weights now and then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic.v1 import Field, confloat, conint

from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.section import Section

if TYPE_CHECKING:
    from tfx_estimator.pipeline.config.declaration import Declaration

_PATH, _TRAIN = "trainer.sync_every", "trainer.distribution.train"
_MOST = 10_000
# For editors that check YAML by the JSON schema.
STEPS_SCHEMA = {"type": "integer", "minimum": 1, "maximum": _MOST}


def long_sync(value: Any) -> Any:
    """Writes a number of steps as a mapping: `4` is `{steps: 4}`.

    Args:
        value: What was declared; anything but a whole number is left as it is.
    """
    return {"steps": value} if isinstance(value, int) and not isinstance(value, bool) else value


class SyncEvery(Section):
    """How often the workers' weights are averaged.

    Source: Stich, Local SGD Converges Fast and Communicates Little, 2018, https://arxiv.org/abs/1805.09767; of the
    momentum: Wang et al., SlowMo, 2019, https://arxiv.org/abs/1910.00643.
    """

    steps: conint(ge=1, le=_MOST) = Field(  # type: ignore[valid-type]
        ..., description="steps between two averagings of the weights"
    )
    outer_momentum: confloat(ge=0, lt=1) = Field(  # type: ignore[valid-type]
        default=0.0, description="momentum of what the averagings change, from one to the next"
    )


def check_sync(declaration: Declaration) -> Iterator[Problem]:
    """Checks what the section needs of the path and of the strategy.

    Args:
        declaration: Typed values.

    Yields:
        The problems.
    """
    trainer = declaration.trainer
    section, train = trainer.sync_every, trainer.distribution.train
    if section is None:
        return
    if trainer.module_file is not None:
        yield Problem(
            _PATH,
            "a module file's trainer_fn or run_fn trains by itself: nobody averages its weights between two steps",
            "no sync_every; or trainer.model with a function that returns the network, and trainer.path keras",
            "remove it, and average the weights in your own loop",
            depends=("trainer.module_file",),
        )
        return
    if not train.is_collective:
        yield Problem(
            _PATH,
            f"it averages the weights of processes that train in step, and the strategy {train.strategy} has none",
            "sync_every only with the strategy multi_worker_mirrored",
            f"remove it, or set {_TRAIN}.strategy to multi_worker_mirrored",
            depends=(f"{_TRAIN}.strategy",),
        )
    if trainer.path == "estimator":
        yield Problem(
            _PATH,
            "weights are averaged between two calls of TensorFlow, before a checkpoint among others, and an "
            "Estimator's session saves by itself, what one process has",
            "sync_every only with trainer.path keras or keras_custom_loop",
            "remove it, or set trainer.path to keras",
            depends=("trainer.path",),
        )
    if train.gradient_compression != "none":
        yield Problem(
            f"{_TRAIN}.gradient_compression",
            "with trainer.sync_every no gradient is sent: weights are, in their own dtype",
            "none",
            "remove one of the two",
            value=train.gradient_compression,
            depends=(_PATH,),
        )
