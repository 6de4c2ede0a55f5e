"""Module files in the manner of TFX's public examples, in a pipeline of TFX's own: only its Trainer is ours."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

MODULES = ["cancer_canned", "cancer_keras", "cancer_template"]


@pytest.mark.parametrize("name", MODULES)
def test_a_model_is_blessed_pushed_and_serves(others, served, eval_examples, name):
    pushed = list((others.root / "pushed" / name).iterdir())
    assert len(pushed) == 1
    right = (served(pushed[0]) > 0.5) == eval_examples[1]
    assert len(right) > 100
    assert right.mean() >= 0.9
    np.testing.assert_array_equal(served(pushed[0]), served(others.models[name] / "Format-Serving"))
    assert others.properties(name)["restarts"] == 0


def test_an_estimators_run_fn_leaves_what_its_trainer_fn_would(others, served):
    model = others.models["cancer_template"]
    assert sorted(path.name for path in model.iterdir()) == ["Format-Serving", "Format-TFMA"]
    for folder in model.iterdir():
        # The SavedModel itself, and not folders of its exporter.
        assert (folder / "saved_model.pb").exists()
        assert (folder / "variables" / "variables.index").exists()
    canned = others.models["cancer_canned"]
    np.testing.assert_allclose(served(model / "Format-Serving"), served(canned / "Format-Serving"), atol=1e-5)
