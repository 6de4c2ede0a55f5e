"""The canned wide-and-deep of TFX's taxi template: trained, converted by one command, and resumed by its run_fn."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import roc_auc_score
from tfx.experimental.templates import taxi

from tests.root import ROOT, run_python
from tests.stack import HERE as STACK

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
FUNCTION = "models.estimator_model.model._create_train_and_eval_spec"


def make_template(folder: Path) -> None:
    """Makes models/ as `tfx template copy` does, with the features that its tutorial uncomments."""
    shutil.copytree(
        Path(taxi.__file__).parent / "models", folder / "models", ignore=shutil.ignore_patterns("*_test.py")
    )
    if not STACK.has_estimator:
        (folder / "models" / "estimator_model").mkdir()
        shutil.copy(HERE / "model.py", folder / "models" / "estimator_model")
    for path in (folder / "models").rglob("*.py"):
        path.write_text(path.read_text().replace("tfx.experimental.templates.taxi.models", "models"))
    path = folder / "models" / "features.py"
    before, marker, after = path.read_text().partition("# Uncomment below to add more features to the model\n")
    assert marker
    commented, end, rest = after.partition("# Number of vocabulary terms")
    path.write_text(before + re.sub("(?m)^# ?", "", commented) + end + rest)


@pytest.fixture
def run(tmp_path):
    """Runs Python in the template's folder."""
    make_template(tmp_path)
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    return lambda *words: run_python(*words, cwd=tmp_path, code=0, PYTHONPATH=path).stdout


def models(folder: Path) -> list[Path]:
    """Returns the models that the Trainers have exported."""
    return list((folder / "artifacts/Trainer/model").iterdir())


def answers(folder: Path) -> tuple[np.ndarray, np.ndarray, dict]:
    """Returns the newest model's logits of the eval split, the labels, and its signatures."""
    files = list(folder.glob("artifacts/CsvExampleGen/examples/*/Split-eval/*.gz"))
    records = list(tf.data.TFRecordDataset(list(map(str, files)), "GZIP").as_numpy_iterator())
    labels = []
    for each in records:
        values = tf.train.Example.FromString(each).features.feature
        tips, fare = (next(iter(values[name].float_list.value), 0.0) for name in ("tips", "fare"))
        labels.append(tips > np.float32(0.2) * np.float32(fare))
    newest = max(models(folder), key=lambda path: int(path.name))
    signatures = tf.saved_model.load(str(newest / "Format-Serving")).signatures
    given = tf.constant(records)
    logits = signatures["predict"](examples=given)["logits"].numpy()
    scores = signatures["serving_default"](inputs=given)["scores"].numpy()
    np.testing.assert_allclose(scores[:, 1], 1 / (1 + np.exp(-logits[:, 0])), atol=1e-5)
    return logits[:, 0], np.array(labels), {name: set(each.structured_outputs) for name, each in signatures.items()}


def test_the_template_is_converted_and_trains_further(run, tmp_path):
    script = str(HERE / "run_taxi.py")
    run(script, "400", "trainer_fn", FUNCTION)
    before, labels, signatures = answers(tmp_path)
    assert 0.05 < labels.mean() < 0.5
    output = run("-m", "tfx_estimator", "convert", "metadata.sqlite", "--output", "converted")
    proof = json.loads((tmp_path / "converted" / "proof.json").read_text())
    assert proof["holds"]
    assert proof["examples"] == 4000
    module = re.search("the run_fn of (.+)", output)[1]
    # From the step at which the Estimator ended.
    run(script, "400", "module_file", module)
    after, _, same = answers(tmp_path)
    assert same == signatures
    assert len(models(tmp_path)) == 2
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-5)
    apart = roc_auc_score(labels, after) - roc_auc_score(labels, before)
    assert abs(apart) <= 1e-4
    run(script, "800", "module_file", module)
    assert len(models(tmp_path)) == 3
    on, _, same = answers(tmp_path)
    assert same == signatures
    losses = [np.mean(np.logaddexp(0, np.where(labels, -each, each))) for each in (before, on)]
    print(f"logits {np.abs(after - before).max():.1e}, AUC {roc_auc_score(labels, before):.6f} {apart:+.1e}")
    print(f"400 steps more: loss {losses[0]:.4f} to {losses[1]:.4f}, AUC {roc_auc_score(labels, on):.6f}")
    assert losses[1] < losses[0]
