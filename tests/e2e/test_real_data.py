"""Real data sets end to end: accuracies, and the pushed model served."""

from __future__ import annotations

import csv
import json
import resource
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.e2e.conftest import Finished
from tests.e2e.serve_images import serve
from tests.root import ROOT, run_python
from tfx_estimator import predict
from tfx_estimator.pipeline.report.report import write_report
from tfx_estimator.pipeline.report.source import read_run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")


def _check_served(served, results):
    """Checks that the accuracy equals the Evaluator's, and the names of the classes."""
    accuracy = (served["class_ids"] == served["labels"]).mean()
    assert accuracy == pytest.approx(results["accuracy"], abs=1e-6)
    names = [results["label_names"][number] for number in served["class_ids"]]
    assert [name.decode() for name in served["classes"]] == names


def _check_predicted(served, results, tmp_path):
    """Checks predictions of PNG files, one of which is broken."""
    folder, output = tmp_path / "images", tmp_path / "classes.csv"
    folder.mkdir()
    for number, image in enumerate(served["images"]):
        Image.fromarray(image[..., 0]).save(folder / f"{number:05}.png")
    (folder / "broken.png").write_bytes((folder / "00000.png").read_bytes()[:60])
    words = ("predict", str(Path(results["pushed"]).parent), str(folder), "--output", str(output))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run_python("-m", "tfx_estimator", *words, timeout=120, code=3)
    assert f"1 could not be read, first {folder}/broken.png" in done.stderr
    rows = list(csv.DictReader(output.read_text().splitlines()))
    hits = sum(int(row["class"]) == label for row, label in zip(rows, served["labels"].tolist(), strict=True))
    assert np.float32(hits / len(rows)) == np.float32(results["accuracy"])
    # Two nearly idle cores predict 5,000 to 7,000 a second. CPU time is 4 to 7 s, 3 of it for the start.
    assert "10,000 predicted" in done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 15


def test_the_digits_preset_trains_a_blessed_and_pushed_model(digits_run, served_digits):
    output, results = digits_run.output, digits_run.summary
    assert results["accuracy"] >= 0.95
    assert results["blessed"] is True
    assert results["examples"] == {"train": 1438, "eval": 359}
    assert {run["state"] for run in results["components"]} == {"ran", "resolved"}
    assert digits_run.versions == [results["pushed"]]
    _check_served(served_digits, results)
    for text in ("TfdsExampleGen", f"{results['accuracy']:.4f} on 359 examples", results["pushed"], "tensorboard"):
        assert text in output
    assert len(results["slices"]["label"]) == 10
    assert sum(count for _, count in results["slices"]["label"].values()) == 359
    assert list(Path(results["model_run"]).glob("events.out.tfevents.*"))
    stored = json.loads((Path(results["model_run"]) / "declaration.json").read_text())
    assert stored["trainer"]["train_steps"] == 600
    assert stored["evaluator"]["min_accuracy"] == 0.95


def test_the_digits_preset_knows_the_digit_that_comes_along(digits_run):
    (row,) = predict(digits_run.versions[0], ROOT / "examples" / "digit.png", top=1, progress=False).rows
    assert row["class"] == "3"


@pytest.mark.long  # the digits, in every run, have the same checks
def test_mnist_reaches_98_percent_and_is_served_as_evaluated(forked, real_data_dir, tmp_path):
    # Half of the preset's steps; test_accuracy.py trains all.
    steps = ("--set", "trainer.train_steps=1000")
    run = Finished.of(forked, "mnist", "--set", f"data.data_dir={real_data_dir}", *steps)
    results = run.summary
    assert results["examples"] == {"train": 60_000, "eval": 10_000}
    assert results["evaluated"] == 10_000
    assert results["accuracy"] >= 0.98
    assert results["blessed"] is True
    served = serve(results["pushed"], str(run.examples))
    _check_served(served, results)
    _check_predicted(served, results, tmp_path)

    page, before = run.logs / "report.html", time.process_time()
    write_report(read_run(str(run.logs)), str(page))
    # 3 to 4 if nothing else uses the caches.
    assert time.process_time() - before < 8
    assert page.stat().st_size < 3_000_000
    assert f"of {10_000 - round(results['accuracy'] * 10_000)}. A wrong label" in page.read_text()


@pytest.mark.long  # two epochs of the whole data set
def test_cifar10_learns_in_two_epochs(workdir, real_data_dir):
    workdir.run(
        "cifar10",
        *("--set", f"data.data_dir={real_data_dir}"),
        *("--set", "trainer.train_steps=780"),
        *("--set", "evaluator.min_accuracy=0.99"),
    )
    results = workdir.summary("cifar10")
    assert results["examples"] == {"train": 50_000, "eval": 10_000}
    assert results["accuracy"] >= 0.55
    assert results["blessed"] is False
    assert results["pushed"] is None
    assert "below 0.9900" in results["reasons"][0]


@pytest.mark.long  # two trainings of each data set
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("preset", "path", "sixteen", "steps", "batch", "apart"),
    [
        ("mnist", "keras", "mixed_bfloat16", 1000, 128, 0.003),
        ("cifar10", "keras", "mixed_bfloat16", 780, 128, 0.015),
        ("mnist", "estimator", "mixed_bfloat16", 1000, 128, 0.003),
        ("mnist", "keras_custom_loop", "mixed_bfloat16", 1000, 128, 0.003),
        # A CPU emulates it: trains on a part of the images, evaluates on all.
        ("mnist", "keras", "mixed_float16", 300, 64, 0.003),
    ],
)
def test_16_bits_are_as_accurate_as_32(workdir, real_data_dir, preset, path, sixteen, steps, batch, apart):
    declared = {"data.data_dir": real_data_dir, "trainer.train_steps": steps, "trainer.path": path}
    declared["trainer.global_batch_size"] = batch
    reached = {}
    for precision in ("float32", sixteen):
        changed = {**declared, "trainer.precision": precision}
        words = (word for name, value in changed.items() for word in ("--set", f"{name}={value}"))
        workdir.run(preset, *words, seconds=570)
        reached[precision] = workdir.summary(preset)["accuracy"]
    print(preset, path, reached)
    assert reached[sixteen] == pytest.approx(reached["float32"], abs=apart)


@pytest.mark.skipif(not FASHION_MNIST.is_dir(), reason="needs Debian's package dataset-fashion-mnist")
@pytest.mark.long
def test_fashion_mnist_from_idx_files_reaches_88_percent(workdir, tmp_path):
    declaration = {
        "name": "fashion",
        "data": {"dataset": str(FASHION_MNIST)},
        "trainer": {"model": "mnist_cnn", "train_steps": 1500, "global_batch_size": 128},
        "evaluator": {"min_accuracy": 0.88},
    }
    path = tmp_path / "fashion.yaml"
    path.write_text(json.dumps(declaration))
    workdir.run(str(path))
    results = workdir.summary("fashion")
    assert results["examples"] == {"train": 60_000, "eval": 10_000}
    assert results["accuracy"] >= 0.88
    assert results["blessed"] is True
