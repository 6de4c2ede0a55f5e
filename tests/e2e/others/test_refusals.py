"""Options that a module file cannot have are refused when the pipeline is built, with a remedy that works."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfx.components.trainer import executor
from tfx.dsl.components.base.executor_spec import ExecutorClassSpec
from tfx.types import channel, standard_artifacts

from tfx_estimator.components.trainer import Trainer
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.stack import stacks

pytestmark = [pytest.mark.unit, pytest.mark.timeout(120)]

MODULES = Path(__file__).resolve().parent / "modules"
MIRRORED = {"train": {"strategy": "mirrored", "devices": {"cpu": 2}}}
WORKERS = {"train": {"strategy": "multi_worker_mirrored", "workers": 2}}
SERVED = {"train": {"strategy": "parameter_server", "workers": 2, "ps": 1}}


def _trainer(module: str, distribution: dict | None = None, **arguments):
    examples = channel.Channel(standard_artifacts.Examples)
    if "trainer_fn" not in arguments:
        arguments["module_file"] = str(MODULES / f"{module}.py")
    return Trainer(examples=examples, distribution=distribution, **arguments)


def test_of_two_functions_one_must_be_named():
    with pytest.raises(DeclarationError, match="has a run_fn, which TFX calls, and a trainer_fn") as caught:
        _trainer("cancer_both", WORKERS)
    assert "cancer_both.trainer_fn" in str(caught.value)


@pytest.mark.parametrize("distribution", [None, MIRRORED, WORKERS, SERVED])
def test_a_keras_run_fn_accepts_each_of_these(distribution):
    assert _trainer("cancer_workers", distribution)


@pytest.mark.parametrize("strategy", ["mirrored", "central_storage", "multi_worker_mirrored", "parameter_server"])
def test_the_remedies_of_a_refusal_work(monkeypatch, strategy):
    monkeypatch.syspath_prepend(str(MODULES))
    distribution = {"train": {"strategy": strategy}}
    if strategy in ("mirrored", "central_storage"):
        distribution["train"]["devices"] = {"cpu": 2}
    named = _trainer("", distribution, trainer_fn="cancer_canned.trainer_fn")
    assert Settings.of(named.exec_properties).path == "estimator"
    if stacks.current().has_trainer_fn_executor:
        chosen = _trainer("cancer_both", distribution, custom_executor_spec=ExecutorClassSpec(executor.Executor))
        assert Settings.of(chosen.exec_properties).path == "estimator"
    other = _trainer("cancer_both", custom_executor_spec=ExecutorClassSpec(executor.GenericExecutor))
    assert Settings.of(other.exec_properties).path == "run_fn"
