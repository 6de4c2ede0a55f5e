"""A Trainer for anybody's pipeline: its parameters `threads`, `gpu`, `onednn` and `profile`."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.components.trainer.test_settings import channels
from tfx_estimator.components.trainer import Trainer
from tfx_estimator.components.trainer.settings import OPERATION_KEY, Settings
from tfx_estimator.pipeline.base.errors import DeclarationError

pytestmark = pytest.mark.unit

GIVEN: dict[str, Any] = {
    "threads": {"intra_op": 2},
    "gpu": {"memory_growth": True},
    "onednn": False,
    "profile": {"start_step": 4},
}


def made(**given: Any) -> dict[str, Any]:
    return Trainer(**channels(), **{"trainer_fn": "no_such.trainer_fn", **given}).exec_properties


def test_what_is_given_travels_to_the_executor_and_is_no_part_of_the_key():
    properties, plain = made(**GIVEN), made()
    runtime = Settings.of(properties).runtime
    assert runtime.environment == {
        "TF_NUM_INTRAOP_THREADS": "2",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }
    assert (runtime.profile.start_step, runtime.profile.steps) == (4, 20)
    assert Settings.of(plain).runtime.environment == {}
    assert Settings.of(plain).runtime.profile is None
    assert {name for name in plain if plain[name] != properties[name]} == {OPERATION_KEY}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"threads": {"intra": 2}}, "did you mean `intra_op`?"),
        ({"threads": 2}, "Trainer(threads=…) has 1 problem"),
        ({"threads": {"intra_op": object()}}, "Trainer(threads=…): threads.intra_op is an object, builtins.object"),
        ({"gpu": {"memory_growth": True, "memory_limit_mb": 99}}, "\n  gpu.memory_limit_mb: 99\n"),
        ({"onednn": "no idea", "threads": {"intra_op": 0}}, "Trainer(threads=…, onednn=…) has 2 problems"),
        ({"profile": {}, "trainer_fn": None, "run_fn": "no_such.run_fn"}, "a run_fn does its steps by itself"),
        (
            {"threads": {"inter_op": 2}, "distribution": {"train": {"strategy": "parameter_server", "workers": 2}}},
            "would wait for each other for ever",
        ),
        ({"onednn": True, "settings": Settings(runtime_section={"onednn": False})}, "them in one place"),
    ],
)
def test_what_is_wrong_is_refused_when_the_pipeline_is_built(given, told):
    with pytest.raises(DeclarationError, match=re.escape(told)) as found:
        made(**given)
    assert "trainer." not in str(found.value)
