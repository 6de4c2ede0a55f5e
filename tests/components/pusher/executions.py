"""Executes the Pusher once, as TFX does."""

from __future__ import annotations

import json

from tests.artifacts import artifact
from tfx_estimator.components.pusher.executor import Executor


def execute(model, base, output, blessed=None, infra=None, alone=False, examples=None):
    """Runs it with these blessings; `alone`: the value of a runtime parameter for the folder."""
    base = str(base)
    pushed, inputs = artifact("PushedModel", output), {"model": [artifact("Model", model)]}
    if blessed is not None:
        inputs["model_blessing"] = [artifact("ModelBlessing", blessed=int(blessed))]
    if infra is not None:
        inputs["infra_blessing"] = [artifact("InfraBlessing", blessed=int(infra))]
    if examples is not None:
        inputs["examples"] = [artifact("Examples", examples)]
        inputs["examples"][0].split_names = '["train", "eval"]'
    destination = base if alone else json.dumps({"filesystem": {"base_directory": base}})
    Executor().Do(inputs, {"pushed_model": [pushed]}, {"push_destination": destination})
    return pushed
