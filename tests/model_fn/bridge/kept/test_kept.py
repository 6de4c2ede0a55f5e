"""A kept training goes on as the Estimator's, to the last bit, in a process that has TensorFlow and Keras alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.model_fn.bridge.kept.conftest import KERAS

pytestmark = pytest.mark.equivalence
# By the name of the model_fn: why several replicas cannot train it.
WHOLE = {
    "normalised": "",
    "averaged": "",
    "of_text": "",
    "like_bert": "",
    "adversarial": "its model_fn computes gradients after it has applied others",
    "accumulated": "its model_fn applies gradients inside of a condition or a loop",
    "by_keras": "",
}


@pytest.fixture(scope="session")
def kept(tf: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Any, Any, str, Any]]:
    """Trains a model_fn some steps and keeps it: returns Estimator, input_fn, folder and result."""
    from tests.model_fn.bridge.kept import model_fns
    from tfx_estimator.model_fn.bridge.kept.keeping import keep

    made: dict[str, Any] = {}

    def get(name: str) -> tuple[Any, Any, str, Any]:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            vocabulary = folder / "vocabulary"
            vocabulary.write_text("a\nbc\n")
            config = tf.estimator.RunConfig(str(folder / "model"), save_summary_steps=None, log_step_count_steps=None)
            params = {"vocabulary": str(vocabulary)} if name == "of_text" else None
            estimator = tf.estimator.Estimator(getattr(model_fns, name), config=config, params=params)
            input_fn = model_fns.text_input if name == "of_text" else model_fns.dense_input()
            estimator.train(input_fn, steps=3)
            made[name] = (estimator, input_fn, str(folder / "kept"), keep(estimator, input_fn, input_fn, str(folder / "kept")))
            vocabulary.rename(folder / "moved")
        return made[name]

    return get


@pytest.mark.parametrize("name", WHOLE)
def test_it_goes_on_to_the_bit(kept: Any, name: str) -> None:
    _, _, folder, result = kept(name)
    proof = json.loads(Path(folder, "proof.json").read_text())
    assert proof["holds"]
    assert proof["next_steps"] == {"loss": 0.0, "variable": 0.0}
    assert proof["logits"] == {"estimator": 0.0, "metrics": 0.0}
    assert result.step == 3
    assert result.uncut == WHOLE[name]
