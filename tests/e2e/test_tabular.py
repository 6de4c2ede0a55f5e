"""Somebody's TFX pipeline over a table: only its Trainer is ours, and only its distribution is new."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.root import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

HERE = Path(__file__).resolve().parent / "tabular"
# Of losses and probabilities; they differ by 1e-7.
TOLERANCE = 1e-5


@pytest.mark.parametrize(
    ("name", "tasks"),
    [
        # The loss is tried before the training.
        ("workers", ["chief-0", "evaluator-0", "replica_check-0", "worker-0"]),
        pytest.param("mirrored", ["chief-0", "replica_check-0"], marks=pytest.mark.long),
    ],
)
def test_a_canned_estimator_is_trained_alike_by_one_device_and_by(tmp_path: Path, name: str, tasks: list[str]):
    # In a folder of its own: TFX packs all modules beside a module file.
    (tmp_path / "module").mkdir()
    module_file = shutil.copy(HERE / "cancer_module.py", tmp_path / "module")
    done = subprocess.run(
        [sys.executable, str(HERE / "run_cancer.py"), str(tmp_path), module_file, "alone", name],
        capture_output=True,
        text=True,
        timeout=400,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    models = {name: Path(folder) for name, folder in json.loads(done.stdout.splitlines()[-1]).items()}
    measured = _measured(tmp_path / "metadata.sqlite")

    examples, labels = _eval_examples(tmp_path)
    assert len(labels) > 100
    scores = {each: _serve(folder, examples) for each, folder in models.items()}
    for each, served in scores.items():
        assert measured[each]["last_step"] == 200, each
        assert measured[each]["restarts"] == 0, each
        assert measured[each]["extra_steps"] == 0, each
        # Nobody knows how many examples the batches of this input_fn hold.
        assert "examples_per_second" not in measured[each], each
        assert measured[each]["eval_accuracy"] >= 0.9, each
        # Each example was evaluated, and once.
        assert measured[each]["eval_label/mean"] == pytest.approx(labels.mean(), abs=1e-6), each
        assert measured[each]["eval_accuracy"] == pytest.approx((served.argmax(-1) == labels).mean(), abs=1e-6), each
        losses = -np.log(served[np.arange(len(labels)), labels])
        assert measured[each]["eval_average_loss"] == pytest.approx(losses.mean(), abs=1e-5), each
    # A global batch of twice the size, or other batches, would show.
    alone = measured["alone"]["eval_average_loss"]
    assert measured[name]["eval_average_loss"] == pytest.approx(alone, abs=TOLERANCE)
    np.testing.assert_allclose(scores[name], scores["alone"], atol=TOLERANCE)

    # As TFX's own components tell theirs, and each line once.
    assert len(re.findall(r"absl\.tfx_estimator\.trainer:step 200/200", done.stderr)) == 2
    told = re.findall(r"training begins; the logs of its tasks: (\S+)", done.stderr)
    trainers = [f"{tmp_path}/artifacts/{each}/training/" for each in ("alone", name)]
    assert [path.startswith(folder) and path.endswith("/logs") for path, folder in zip(told, trainers)] == [True, True]
    assert len(told) == 2

    assert _logs(models["alone"]) == ["chief-0"]
    assert _logs(models[name]) == tasks


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
