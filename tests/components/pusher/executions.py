"""Executes the Pusher once, as TFX does."""

from __future__ import annotations

import json

from tfx.types import standard_artifacts

from tfx_estimator.components.pusher.executor import Executor


def execute(model: str, base: str, output: str, blessed=None, infra=None, alone=False):
    """Executes it, as the Evaluator and the InfraValidator said; `alone` as a runtime parameter tells the folder."""
    pushed = standard_artifacts.PushedModel()
    pushed.uri = output
    inputs = {"model": [standard_artifacts.Model()]}
    inputs["model"][0].uri = model
    if blessed is not None:
        blessing = standard_artifacts.ModelBlessing()
        blessing.set_int_custom_property("blessed", int(blessed))
        inputs["model_blessing"] = [blessing]
    if infra is not None:
        blessing = standard_artifacts.InfraBlessing()
        blessing.set_int_custom_property("blessed", int(infra))
        inputs["infra_blessing"] = [blessing]
    destination = base if alone else json.dumps({"filesystem": {"base_directory": base}})
    Executor().Do(inputs, {"pushed_model": [pushed]}, {"push_destination": destination})
    return pushed
