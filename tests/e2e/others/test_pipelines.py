"""Module files like TFX's public examples, in a TFX pipeline in which only the Trainer is ours."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.e2e.others.conftest import MODULES
from tfx_estimator.pipeline.base.stack import stacks

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.mark.parametrize("name", [MODULES[0], *(pytest.param(name, marks=pytest.mark.long) for name in MODULES[1:])])
def test_a_model_is_blessed_pushed_and_serves(others, served, eval_examples, name):
    pushed = list((others.root / "pushed" / name).iterdir())
    assert len(pushed) == 1
    right = (served(pushed[0]) > 0.5) == eval_examples[1]
    assert len(right) > 100
    assert right.mean() >= 0.9
    np.testing.assert_array_equal(served(pushed[0]), served(others.models[name] / "Format-Serving"))
    assert others.properties(name)["restarts"] == 0


def test_an_estimators_run_fn_has_the_outputs_of_its_trainer_fn(others, served):
    model = others.models["cancer_template"]
    evaluated = ["Format-TFMA"] if stacks.current().has_eval_saved_model else []
    assert sorted(path.name for path in model.iterdir()) == ["Format-Serving", *evaluated]
    for folder in model.iterdir():
        # The SavedModel itself, not the folders of its exporter.
        assert (folder / "saved_model.pb").exists()
        assert (folder / "variables" / "variables.index").exists()
    canned = others.models["cancer_canned"]
    for each in (model, canned):
        checkpoint = each.parents[1] / "model_run" / each.name / "Format-Serving" / "model.ckpt-200.index"
        assert checkpoint.exists()
    np.testing.assert_allclose(served(model / "Format-Serving"), served(canned / "Format-Serving"), atol=1e-5)


def test_training_is_logged_like_tfx_components(others):
    ours = len(others.models.keys() - {"tfx"})
    # Each line appears once; a run_fn reports no steps.
    assert len(re.findall(r"absl\.tfx_estimator\.trainer:step 200/200", others.output)) == 1
    logs = rf"logs of its tasks: {re.escape(str(others.root))}\S+/training/\S+/logs"
    assert len(re.findall(logs, others.output)) == ours
    assert others.properties("cancer_canned")["last_step"] == 200
    assert others.properties("cancer_canned")["extra_steps"] == 0
    for name in others.models.keys() - {"tfx"}:
        # The batch size of an input_fn is unknown.
        assert "examples_per_second" not in others.properties(name)
