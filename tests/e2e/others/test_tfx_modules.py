"""TFX's own module files, unchanged: on one device, on two, and in a cluster."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.components.trainer.conftest import Training

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
def prepared(request, tmp_path_factory) -> tuple[str, dict[str, list[Any]], list[bytes], np.ndarray]:
    """A module's name; the artifacts of its preprocessing_fn for 600 examples; 200 others, and their classes."""
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam
    from apache_beam import Create, Map, Pipeline
    from apache_beam.io import WriteToTFRecord
    from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils
    from tfx.types import standard_artifacts

    module, label, classes, features = MODULES[request.param]
    home = tmp_path_factory.mktemp(request.param)
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
    raw = [{**row, label: [each]} for row, each in zip(rows, labels)]
    import tensorflow as tf

    spec = {name: tf.io.FixedLenFeature([size], tf.float32) for name, size in features.items()}
    spec[label] = tf.io.FixedLenFeature([1], tf.int64)
    metadata = dataset_metadata.DatasetMetadata.from_feature_spec(spec)
    preprocessing_fn = importlib.import_module(module).preprocessing_fn
    options = ["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"]
    with Pipeline(argv=options) as pipeline, tft_beam.Context(temp_dir=str(home / "tmp")):
        for split in ("train", "eval"):
            data = pipeline | f"create {split}" >> Create(raw[:600])
            transformed, graph = (data, metadata) | f"transform {split}" >> tft_beam.AnalyzeAndTransformDataset(
                preprocessing_fn
            )
            coder = tft.coders.ExampleProtoCoder(transformed[1].schema)
            place = str(home / "examples" / f"Split-{split}" / "data_tfrecord")
            _ = transformed[0] | f"encode {split}" >> Map(coder.encode) | f"write {split}" >> WriteToTFRecord(place)
        _ = graph | tft_beam.WriteTransformFn(str(home / "graph"))
        _ = metadata | tft_beam.WriteMetadata(str(home / "graph" / tft.TFTransformOutput.RAW_METADATA_DIR), pipeline)
    examples, transform_graph = standard_artifacts.Examples(), standard_artifacts.TransformGraph()
    examples.uri, transform_graph.uri = str(home / "examples"), str(home / "graph")
    examples.split_names = json.dumps(["train", "eval"])
    del spec[label]
    coder = tft.coders.ExampleProtoCoder(schema_utils.schema_from_feature_spec(spec))
    served = [coder.encode(row) for row in rows[600:]]
    return module, {"examples": [examples], "transform_graph": [transform_graph]}, served, labels[600:]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_module_trains_unchanged(prepared, tmp_path: Path, strategy):
    import tensorflow as tf

    from tfx_estimator.components.trainer.settings import Settings

    module, inputs, served, labels = prepared
    settings = Settings(arguments={"distribution": {**STRATEGIES[strategy], "max_restarts": 0}})
    functions = {"run_fn": f"{module}.run_fn", "eval_args": json.dumps({"num_steps": 5})}
    model, model_run = Training(tmp_path / "Trainer", inputs).run(settings, 300, **functions)
    signature = tf.saved_model.load(str(model / "Format-Serving")).signatures["serving_default"]
    (scores,) = signature(examples=tf.constant(served)).values()
    assert (np.argmax(scores, axis=-1) == labels).mean() >= 0.9
    logs = {path.name.split(".")[0] for path in Path(model_run.uri).glob("logs/*.log")}
    assert logs == {"chief-0", "worker-0"} if strategy == "workers" else {"chief-0"}
