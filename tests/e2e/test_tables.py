"""Tables of features, from a CSV file to a pushed model."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_metadata.proto.v0 import statistics_pb2

from tests.browser import open_browser
from tests.e2e.conftest import Workdir
from tests.e2e.test_report import check_page
from tests.examples import copy_example
from tests.root import ROOT, run_python
from tests.table_files import read_columns, write_parquet, write_records
from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.user_data.embedded_tables import place_of
from tfx_estimator.pipeline.user_data.table import read_table

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TAXI = ROOT.parent / "shared" / "data" / "taxi"
_PLAIN = """\
name: NAME
data: {csv: data/*.csv, label: LABEL}
trainer: {model: MODEL, train_steps: 200, global_batch_size: 32, eval_batch_size: 64}
evaluator: {slices: [size]}
"""


def _declare(folder: Path, name: str, model: str, label: str = "benign", more: str = "") -> Workdir:
    text = _PLAIN.replace("NAME", name).replace("MODEL", model).replace("LABEL", label)
    (folder / f"{name}.yaml").write_text(text + more)
    return Workdir(folder / "runs")


def _serve(pushed: str, rows: list[dict[str, str]], words: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Returns what a pushed model answers to rows of a CSV file."""

    def example(row: dict[str, str]) -> bytes:
        features = {
            name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[cell.encode()]))
            if name in words
            else tf.train.Feature(float_list=tf.train.FloatList(value=[float(cell)]))
            for name, cell in row.items()
            if cell
        }
        return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()

    signature = tf.saved_model.load(pushed).signatures["serving_default"]
    return {name: value.numpy() for name, value in signature(tf.constant(list(map(example, rows)))).items()}


def _serve_columns(pushed: str, rows: list[dict[str, str]], words: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Returns the same by the signature that takes a tensor a column."""
    columns = {
        name: tf.constant([row[name] if name in words else float(row[name] or "nan") for row in rows])
        for name in rows[0]
    }
    signature = tf.saved_model.load(pushed).signatures["columns"]
    return {name: value.numpy() for name, value in signature(**columns).items()}


def test_the_page_s_table_without_code_is_trained_blessed_pushed_and_cached(tmp_path):
    folder = copy_example("canned-estimator-csv", tmp_path)
    (whole,) = re.findall(r"```yaml\n(name: cancer\n.*?)```", (ROOT / "docs" / "tables.md").read_text(), re.DOTALL)
    (folder / "plain.yaml").write_text(whole)
    workdir = Workdir(folder / "runs")
    run = ("plain.yaml", "--set", "evaluator.slices=[size]")
    workdir.run(*run, cwd=folder)
    results = workdir.summary("cancer")
    assert results["training"]["last_step"] == 200
    assert sum(results["examples"].values()) == 569
    assert results["metrics"]["auc"] >= 0.97
    assert results["metrics"]["skill"] >= 0.7
    assert results["blessed"] is True
    assert set(results["slice_metrics"]["size"]) == {"small", "medium", "large"}
    with open(folder / "data" / "cancer.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    labels = np.array([int(row.pop("benign")) for row in rows])
    # A missing number is the mean, a missing word one that nobody knows.
    rows[0]["size"], rows[0]["worst_area"] = "", ""
    answers = _serve(results["pushed"], rows, ("size",))
    assert np.mean((answers["scores"][:, 1] > 0.5) == labels) >= 0.95
    by_column = _serve_columns(results["pushed"], rows, ("size",))
    np.testing.assert_allclose(by_column["probabilities"], answers["scores"], atol=1e-6)
    workdir.run(*run, cwd=folder)
    assert {state for node, state in workdir.states("cancer").items() if node != "BaselineResolver"} == {"cached"}
    # The same network, steps and optimizers by Keras; other first weights.
    workdir.run(*run, "--set", "trainer.path=keras_custom_loop", "--report", cwd=folder)
    by_keras = workdir.summary("cancer")
    with open_browser(tmp_path / "browser") as browser:
        check_page(browser, max((workdir.path / "cancer" / "logs").glob("*/report.html")))
    losses = [each["metrics"]["binary_crossentropy"] for each in (by_keras, results)]
    assert losses[0] == pytest.approx(losses[1], abs=0.05)
    assert (by_keras["blessed"], by_keras["training"]["last_step"]) == (True, 200)
    answered = _serve(by_keras["pushed"], rows, ("size",))
    by_column = _serve_columns(by_keras["pushed"], rows, ("size",))
    np.testing.assert_allclose(by_column["probabilities"], answered["probabilities"], atol=1e-6)
    assert np.abs(answered["probabilities"] - answers["scores"]).mean() <= 0.05


_NETWORK = """\
import tensorflow as tf


def network(outputs):
    inputs = [tf.keras.Input([1], name=name) for name in ("mean_concavity", "worst_texture")]
    hidden = tf.keras.layers.Dense(16, "relu")(tf.keras.layers.Concatenate()(inputs))
    return tf.keras.Model(inputs, tf.keras.layers.Dense(outputs)(hidden))


def compiled(outputs):
    model = network(outputs)
    model.compile("adam", "mse", metrics=["mae"])
    return model
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_network_is_a_regression_on_every_path_with_the_examples_weights(tmp_path):
    folder = copy_example("canned-estimator-csv", tmp_path)
    (folder / "mine.py").write_text(_NETWORK)
    workdir = _declare(folder, "number", '"mine:network"', "worst_area")
    # Weights of a hundred: Adam does not care.
    of_adam = ("--set", "trainer.optimizer={name: adam, learning_rate: 0.01}", "--set", "evaluator.slices=[]")
    found = {}
    for path in ("estimator", "keras", "keras_custom_loop"):
        sets = ("--set", f"trainer.path={path}", "--set", "data.weight=worst_perimeter", *of_adam)
        workdir.run("number.yaml", *sets, cwd=folder)
        found[path] = workdir.summary("number")["metrics"]
        assert found[path]["skill"] >= 0.3
    for name, value in found["estimator"].items():
        assert [found[path][name] for path in ("keras", "keras_custom_loop")] == pytest.approx([value] * 2, rel=1e-4)
    sets = ("--set", "trainer.path=keras", "--set", "trainer.model=mine:compiled", "--set", "trainer.train_steps=1000")
    workdir.run("number.yaml", *sets, cwd=folder)
    assert workdir.summary("number")["training"]["last_step"] == 1000


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_rows_of_later_days_are_checked_against_the_schema_of_the_first(tmp_path):
    folder = copy_example("canned-estimator-csv", tmp_path)
    workdir = _declare(folder, "daily", "linear")
    run = ("daily.yaml", "--set", "trainer.train_steps=20")
    kept, table = folder / "runs" / "daily" / "schema.pbtxt", folder / "data" / "cancer.csv"
    with open(table, newline="") as file:
        first = list(csv.DictReader(file))

    def write(rows: list[dict[str, str]]) -> None:
        with open(table, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)

    def states() -> dict[str, str]:
        states = workdir.states("daily")
        assert states.pop("BaselineResolver", "resolved") in ("resolved", "not reached")
        return states

    workdir.run(*run, cwd=folder)
    text = kept.read_text()
    workdir.run(*run, cwd=folder)
    assert set(states().values()) == {"cached"}

    # A column is gone: this is seen before anything starts.
    write([{name: cell for name, cell in row.items() if name != "worst_area"} for row in first])
    output = workdir.run(*run, cwd=folder, code=DataError.exit_code)
    assert all(each in output for each in (str(table), "column worst_area is gone", str(kept)))
    assert not states()

    # It is mostly empty, which the statistics tell.
    write([{**row, **({"worst_area": ""} if number % 5 < 3 else {})} for number, row in enumerate(first)])
    output = workdir.run(*run, cwd=folder, code=DataError.exit_code)
    assert "feature 'worst_area': Empty cells: " in output
    assert str(kept) in output
    assert (states()["ExampleValidator"], states()["Trainer"]) == ("failed", "not reached")

    # One new word, and one empty cell, are no other table.
    write([{**first[0], "size": "huge", "worst_area": ""}, *first[1:]])
    workdir.run(*run, cwd=folder)
    assert (states()["Trainer"], kept.read_text()) == ("ran", text)


@pytest.mark.long
@pytest.mark.parametrize(
    ("preset", "rows", "promised"),
    [("cancer", 569, {"auc": 0.97, "skill": 0.7}), ("diabetes", 442, {"skill": 0.3})],
)
def test_a_preset_of_an_embedded_table_is_blessed_and_then_cached(tmp_path, preset, rows, promised):
    workdir = Workdir(tmp_path / "runs")
    workdir.run(preset, cwd=tmp_path)
    results = workdir.summary(preset)
    assert sum(results["examples"].values()) == rows
    assert {name: least for name, least in promised.items() if results["metrics"][name] < least} == {}
    assert results["blessed"] is True
    assert results["pushed"]
    # To TFX a file that had to be written again is the same.
    Path(place_of(preset)).unlink()
    workdir.run(preset, cwd=tmp_path)
    assert {state for node, state in workdir.states(preset).items() if node != "BaselineResolver"} == {"cached"}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("preset", "objective", "path", "best"),
    [("cancer", "auc", "keras", max), ("diabetes", "average_loss", "estimator", min)],
)
def test_a_table_s_model_is_trained_with_the_best_of_the_tuned_values(tmp_path, preset, objective, path, best):
    workdir = Workdir(tmp_path / "runs")
    ranges = "{trainer.params.hidden_units: [[2], [32, 16]], trainer.optimizer.learning_rate: [0.0001, 0.05]}"
    tuned = ("--set", f"tune.ranges={ranges}", "--set", "tune.max_trials=3", "--set", f"tune.objective={objective}")
    workdir.run(preset, *tuned, "--set", f"trainer.path={path}", cwd=tmp_path, seconds=500)
    (file,) = (tmp_path / "runs").rglob("trials.json")
    found = json.loads(file.read_text())
    scores = [each["metrics"][objective] for each in found["trials"]]
    assert len(set(scores)) == 3
    assert found["best"] == workdir.summary(preset)["tuning"]["best"] == scores.index(best(scores)) + 1


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_strategies_of_a_table_are_measured(tmp_path):
    words = ("bench", "strategies", "diabetes", "--strategies", "mirrored:2", "--paths", "estimator,keras")
    few = ("--steps", "20", "--warmup", "5", "--rounds", "1", "--no-input-share")
    run_python("-m", "tfx_estimator", *words, *few, "--workdir", str(tmp_path), timeout=580)
    (file,) = tmp_path.rglob("strategies.json")
    found = json.loads(file.read_text())
    assert list(found["strategies"]) == [
        f"{path} {name}" for path in ("estimator", "keras") for name in ("one_core", "mirrored:2")
    ]
    assert {each["examples_per_step"] for each in found["measurements"]} == {32.0}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_paths_of_a_regression_are_compared_and_its_worst_mistakes_are_rows(tmp_path):
    words = ("compare", "diabetes", "--vary", "trainer.path=estimator,keras_custom_loop", "--workdir", str(tmp_path))
    run_python("-m", "tfx_estimator", *words, "--set", "trainer.train_steps=100", timeout=580)
    (file,) = tmp_path.rglob("compare.json")
    found = json.loads(file.read_text())
    one, other = found["candidates"].values()
    assert one["parameters"] == other["parameters"]
    # Where progression is 25 to 346.
    assert max(one["rmse"]["value"], other["rmse"]["value"]) <= 65
    (pair,) = found["pairs"].values()
    assert 0 < pair["mean_apart"] < pair["most_apart"]
    assert pair["mse"]["low"] < pair["mse"]["value"] < pair["mse"]["high"]
    page = file.with_name("compare.html").read_text()
    assert page.count('class="cells"') == 20


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_paths_of_a_table_are_compared_row_by_row(tmp_path):
    words = ("compare", "cancer", "--vary", "trainer.path=estimator,keras", "--workdir", str(tmp_path))
    run_python("-m", "tfx_estimator", *words, timeout=580)
    (file,) = tmp_path.rglob("compare.json")
    found = json.loads(file.read_text())
    one, other = found["candidates"].values()
    assert one["parameters"] == other["parameters"]
    assert min(one["accuracy"]["value"], other["accuracy"]["value"]) >= 0.95
    (pair,) = found["pairs"].values()
    assert (found["examples"], pair["agreement"] >= 0.95) == (198, True)
    # Cells of a row on which they disagree.
    assert pair["agreement"] == 1 or "mean_area: " in file.with_suffix(".html").read_text()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_parquet_and_tfrecord_files_train_what_the_csv_file_trains(tmp_path):
    columns = read_columns(place_of("cancer"))
    write_parquet(tmp_path / "p" / "cancer.parquet", columns)
    write_records(tmp_path / "r" / "cancer.tfrecord.gz", columns)
    workdir, found, statistics = Workdir(tmp_path / "runs"), {}, {}
    for name, table in {"c": "csv: cancer", "p": "parquet: p", "r": "tfrecord: r"}.items():
        (tmp_path / f"{name}.yaml").write_text(
            f"name: {name}\ndata: {{{table}, label: benign}}\n"
            "trainer: {model: linear, train_steps: 50, global_batch_size: 32}\n"
        )
        workdir.run(f"{name}.yaml", cwd=tmp_path)
        found[name] = workdir.summary(name)
        assert (found[name]["blessed"], found[name]["training"]["last_step"]) == (True, 50)
        assert found[name]["pushed"]
        for split in ("train", "eval"):
            (file,) = (tmp_path / "runs" / name).rglob(f"statistics/*/Split-{split}/FeatureStats.pb")
            kept = statistics_pb2.DatasetFeatureStatisticsList.FromString(file.read_bytes())
            features = {feature.path.step[0]: feature for feature in kept.datasets[0].features}
            statistics.setdefault(split, []).append((kept.datasets[0].num_examples, features))
    for of_csv, *others in statistics.values():
        for other in others:
            assert other == of_csv
    for name in "pr":
        assert found[name]["examples"] == found["c"]["examples"]
        assert found[name]["metrics"] == pytest.approx(found["c"]["metrics"], abs=1e-6)

    # The pushed model takes rows of either.
    for inputs, output in {"p/cancer.parquet": "scored.parquet", "r/cancer.tfrecord.gz": "scored.csv"}.items():
        run_python("-m", "tfx_estimator", "predict", "runs/p", inputs, "--output", output, cwd=tmp_path)
        assert len(read_table(str(tmp_path / output), key=output.partition(".")[2]).column("class").values) == 2


@pytest.mark.long
def test_words_are_classes_in_their_order_and_a_number_is_a_regression(tmp_path):
    folder = copy_example("canned-estimator-csv", tmp_path)
    workdir = _declare(folder, "words", "dnn", "size")
    workdir.run("words.yaml", "--set", "evaluator.slices=[]", cwd=folder)
    results = workdir.summary("words")
    # `large` and `small` are parted by the area, `medium` lies between.
    assert results["metrics"]["sparse_categorical_accuracy"] >= 0.8
    assert results["label_names"] == ["large", "medium", "small"]
    workdir = _declare(folder, "number", "dnn", "worst_area")
    workdir.run("number.yaml", cwd=folder)
    results = workdir.summary("number")
    assert results["metrics"]["skill"] >= 0.5
    assert results["blessed"] is True


@pytest.mark.long  # tests/components/evaluator/test_tables.py measures the same gate
def test_a_model_that_answers_the_base_rate_is_not_blessed(tmp_path):
    folder = copy_example("canned-estimator-csv", tmp_path)
    workdir = _declare(folder, "constant", "linear")
    workdir.run(
        "constant.yaml", "--set", "trainer.train_steps=1", "--set", "trainer.optimizer.learning_rate=1e-9", cwd=folder
    )
    results = workdir.summary("constant")
    assert (results["blessed"], results["pushed"]) == (False, None)
    assert results["metrics"]["skill"] <= 0
    assert "constant" in json.dumps(results["reasons"])


@pytest.mark.long
def test_the_example_runs_with_its_module_files(tmp_path):
    folder = copy_example("canned-estimator-csv", tmp_path)
    workdir = Workdir(folder / "runs")
    workdir.run("cancer.yaml", cwd=folder, dry_run=True)
    results = workdir.summary("cancer")
    assert results["metrics"]["auc"] >= 0.95
    assert (results["blessed"], results["training"]["last_step"]) == (True, 200)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(not TAXI.is_dir(), reason="there is no taxi_utils.py")
def test_the_taxi_example_of_tfx_runs_with_its_module_file_unedited(tmp_path):
    shutil.copy(TAXI / "taxi_utils.py", tmp_path)
    (tmp_path / "taxi.yaml").write_text(
        f"""\
name: taxi
data: {{csv: {TAXI}/*.csv, label: tips_xf, task: binary}}
transform: {{module_file: taxi_utils.py}}
trainer: {{module_file: taxi_utils.py, train_steps: 500, eval_steps: 20}}
evaluator: {{slices: [trip_start_hour]}}
"""
    )
    workdir = Workdir(tmp_path / "runs")
    workdir.run("taxi.yaml", cwd=tmp_path, dry_run=True, seconds=800)
    results = workdir.summary("taxi")
    assert sum(results["examples"].values()) == 15_002
    # A label that the preprocessing makes: a quarter of the passengers tips more than a fifth of the fare.
    assert 0.2 <= results["metrics"]["mean_label"] <= 0.25
    assert results["metrics"]["auc"] >= 0.9
    assert len(results["slice_metrics"]["trip_start_hour"]) == 24
    assert results["blessed"] is (results["metrics"]["skill"] > 0)
    sets = ["--set", "trainer.distribution.train=mirrored:2", "--set", "trainer.train_steps=100"]
    workdir.run("taxi.yaml", *sets, cwd=tmp_path, seconds=800)
    assert workdir.summary("taxi")["metrics"]["auc"] >= 0.8
