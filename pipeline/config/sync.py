"""The section `trainer.sync_every`: processes that train by themselves, and average their weights now and then."""

from __future__ import annotations

from typing import Any

from pydantic.v1 import Field, confloat, conint

from tfx_estimator.pipeline.config.section import Section

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
