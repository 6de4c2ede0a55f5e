"""The predictions of a run's evaluation examples agree with the Evaluator's metrics."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tfx_estimator
from tfx_estimator.__main__ import main
from tfx_estimator.components.served_outputs import read_labels

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def predicted(capfd: pytest.CaptureFixture[str], *words: object) -> list[dict[str, str]]:
    capfd.readouterr()
    assert main(["predict", *map(str, words)]) == 0
    return list(csv.DictReader(capfd.readouterr().out.splitlines()))


def test_a_run_and_its_pushed_model_predict_as_evaluated(digits_run, digits_alone, served_digits, capfd, tmp_path):
    home, labels = digits_alone.path / "digits", served_digits["labels"].tolist()
    rows = predicted(capfd, home, *sorted(digits_run.examples.iterdir()))
    hits = [int(row["class"]) == label for row, label in zip(rows, labels, strict=True)]
    assert np.float32(np.mean(hits)) == np.float32(digits_run.summary["accuracy"])
    scores = np.array([[float(row[f"score_{label}"]) for label in range(10)] for row in rows])
    np.testing.assert_allclose(scores, served_digits["probabilities"], atol=1e-5)

    folder = tmp_path / "images"
    folder.mkdir()
    for number, image in enumerate(served_digits["images"]):
        Image.fromarray(image[..., 0]).save(folder / f"{number:03}.png")
    # Moved, and without its run, it still has its class names.
    pushed = shutil.copytree(digits_run.versions[0], tmp_path / "model")
    assert read_labels(str(pushed), "images") == digits_run.summary["label_names"]
    for model in (home / "serving", digits_run.logs, pushed):
        images = predicted(capfd, model, folder)
        assert [row["class"] for row in images] == [row["class"] for row in rows]
        assert [Path(row["file"]).stem for row in images] == [f"{number:03}" for number in range(len(rows))]


def test_python_returns_the_predictions_and_the_unreadable_files(digits_run, served_digits, tmp_path):
    for number, image in enumerate(served_digits["images"][:5]):
        Image.fromarray(image[..., 0]).save(tmp_path / f"{number}.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    result = tfx_estimator.predict(digits_run.logs, tmp_path, progress=False)
    best = np.argmax(served_digits["probabilities"][:5], axis=1)
    assert [row["class"] for row in result.rows] == [str(each) for each in best]
    assert isinstance(result.error, tfx_estimator.DataError)
    assert "broken.png" in result.error.what
    table = result.to_dataframe()
    scores = table[[f"score_{label}" for label in range(10)]].to_numpy()
    np.testing.assert_allclose(scores, served_digits["probabilities"][:5], atol=1e-5)
    assert "1 could not be read" in result._repr_html_()
    with pytest.raises(tfx_estimator.DataError, match="absent"):
        tfx_estimator.predict(digits_run.logs, tmp_path / "absent.png", progress=False)
