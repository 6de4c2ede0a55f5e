"""TFX's own module files, unchanged: on one device, on two, and in a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tfx.components import Transform

from tests.artifacts import example
from tests.components.trainer.conftest import Training
from tfx_estimator import testing
from tfx_estimator.components.trainer.settings import Settings

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(400)]

STRATEGIES: dict[str, dict[str, Any]] = {
    "one_device": {},
    "mirrored": {"train": {"strategy": "mirrored", "devices": {"cpu": 2}}},
    "workers": {"train": {"strategy": "multi_worker_mirrored", "workers": 2}},
}
# Module, label, and the features of an example: normal numbers around a mean that depends on the class.
MEASURED = ("culmen_length_mm", "culmen_depth_mm", "flipper_length_mm", "body_mass_g")
PENGUIN = ("tfx.examples.penguin.penguin_utils_keras", "species", 3, dict.fromkeys(MEASURED, 1))
MNIST = ("tfx.examples.mnist.mnist_utils_native_keras", "image_class", 10, {"image_floats": 784})
MODULES = {"penguin": PENGUIN, "mnist": MNIST}


@pytest.fixture(scope="module", params=MODULES)
def prepared(request) -> tuple[str, dict[str, list[Any]], list[bytes], np.ndarray]:
    """A module's name; the artifacts of its preprocessing_fn for 600 examples; 200 others, and their classes."""
    module, label, classes, features = MODULES[request.param]
    random = np.random.default_rng(3)
    labels = random.integers(classes, size=800)
    places = {name: random.normal(size=(classes, size)) for name, size in features.items()}
    noise = {name: 0.2 * random.normal(size=(800, size)) for name, size in features.items()}
    rows = [
        {name: (places[name][each] + noise[name][row]).astype(np.float32) for name in features}
        for row, each in enumerate(labels)
    ]
    if request.param == "mnist":
        rows = [{name: np.clip(values / 8, -0.5, 0.5) for name, values in row.items()} for row in rows]
    raw = [{**row, label: each} for row, each in zip(rows[:600], labels)]
    given = {"examples": testing.examples(raw), "schema": testing.artifact("Schema", raw)}
    made = testing.run_component(
        Transform, **given, preprocessing_fn=f"{module}.preprocessing_fn", disable_statistics=True
    )
    inputs = {"examples": [made["transformed_examples"]], "transform_graph": [made["transform_graph"]]}
    served = [example(**{name: values.tolist() for name, values in row.items()}) for row in rows[600:]]
    return module, inputs, served, labels[600:]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_module_trains_unchanged(prepared, tmp_path: Path, strategy):
    module, inputs, served, labels = prepared
    settings = Settings(arguments={"distribution": {**STRATEGIES[strategy], "max_restarts": 0}})
    functions = {"run_fn": f"{module}.run_fn", "eval_args": json.dumps({"num_steps": 5})}
    model, model_run = Training(tmp_path / "Trainer", inputs).run(settings, 300, **functions)
    signature = tf.saved_model.load(str(model / "Format-Serving")).signatures["serving_default"]
    (scores,) = signature(examples=tf.constant(served)).values()
    assert (np.argmax(scores, axis=-1) == labels).mean() >= 0.9
    logs = {path.name.split(".")[0] for path in Path(model_run.uri).glob("logs/*.log")}
    assert logs == {"chief-0", "worker-0"} if strategy == "workers" else {"chief-0"}
