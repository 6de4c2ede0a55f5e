"""Somebody's TFX pipeline over a table: only its Trainer is ours, and only its distribution is new."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

PROJECT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent / "tabular"


def test_a_canned_estimator_is_trained_alike_by_one_device_two_replicas_and_two_workers(tmp_path: Path):
    # In a folder of its own: TFX packs all modules beside a module file.
    (tmp_path / "module").mkdir()
    module_file = shutil.copy(HERE / "cancer_module.py", tmp_path / "module")
    done = subprocess.run(
        [sys.executable, str(HERE / "run_cancer.py"), str(tmp_path), module_file],
        capture_output=True,
        text=True,
        timeout=400,
        cwd=PROJECT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    models = {name: Path(folder) for name, folder in json.loads(done.stdout.splitlines()[-1]).items()}
    measured = _measured(tmp_path / "metadata.sqlite")

    for name in models:
        assert measured[name]["last_step"] == 200, name
        assert measured[name]["restarts"] == 0, name
        assert measured[name]["eval_accuracy"] >= 0.9, name
    for name in ("mirrored", "workers"):
        assert measured[name]["eval_average_loss"] == pytest.approx(measured["alone"]["eval_average_loss"], abs=0.02)
        assert measured[name]["eval_accuracy"] == pytest.approx(measured["alone"]["eval_accuracy"], abs=0.02)

    logs = {name: _logs(folder) for name, folder in models.items()}
    assert logs["alone"] == ["chief-0"]
    # The loss was tried before the training.
    assert logs["mirrored"] == ["chief-0", "probe-0"]
    assert logs["workers"] == ["chief-0", "evaluator-0", "probe-0", "worker-0"]

    examples, labels = _eval_examples(tmp_path)
    assert len(labels) > 100
    scores = {name: _serve(folder, examples) for name, folder in models.items()}
    for name, served in scores.items():
        accuracy = float((served.argmax(-1) == labels).mean())
        assert accuracy == pytest.approx(measured[name]["eval_accuracy"], abs=1e-6), name
        np.testing.assert_allclose(served, scores["alone"], atol=0.1, err_msg=name)


def _measured(database: Path) -> dict[str, dict[str, float]]:
    """What the executors measured, by Trainer, from ML Metadata."""
    from ml_metadata import metadata_store
    from ml_metadata.proto import metadata_store_pb2

    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = str(database)
    runs = metadata_store.MetadataStore(config).get_artifacts_by_type("ModelRun")
    return {
        Path(run.uri).parents[1].name: {key: value.double_value for key, value in run.custom_properties.items()}
        for run in runs
    }


def _logs(model: Path) -> list[str]:
    """The tasks that were started."""
    run = model.parents[1] / "model_run" / model.name
    return sorted({path.name.split(".")[0] for path in (run / "logs").glob("*.log")})


def _eval_examples(root: Path) -> tuple[list[bytes], np.ndarray]:
    import tensorflow as tf

    files = list(root.glob("artifacts/CsvExampleGen/examples/*/Split-eval/*.gz"))
    records = list(tf.data.TFRecordDataset(list(map(str, files)), "GZIP").as_numpy_iterator())
    labels = [tf.train.Example.FromString(each).features.feature["benign"].int64_list.value[0] for each in records]
    return records, np.array(labels)


def _serve(model: Path, examples: list[bytes]) -> np.ndarray:
    """Probabilities of the exported model, from serialized tf.Examples."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(model / "Format-Serving"))
    return loaded.signatures["predict"](examples=tf.constant(examples))["probabilities"].numpy()
