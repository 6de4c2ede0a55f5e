"""The test kit finds five faults in a user's code, and nothing in code without them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tfx.types import standard_artifacts

from tests.examples import copy_example, edit
from tests.model_fn.bridge.test_convert import SITE
from tests.root import ROOT, run_python
from tfx_estimator import testing

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# In the file, what is replaced by what; the test that fails, and what it says.
FAULTS = [
    ("models.py", "(labels, logits)", "((labels + 1) % 10, logits)", "learns_the_classes", "0 of 32 examples are pred"),
    ("models.py", "tf.squeeze(v1.layers.dense(x, 1), 1)", "v1.layers.dense(x, 1)", "learns_numbers", "wrong shapes"),
    ("models.py", '"adam", "learning_rate": 0.001', '"sgd", "learning_rate": 500.0', "network_learns", "too high or"),
    ("trips.py", "tft.mean(miles)", "tf.reduce_mean(miles)", "served_is_what", "alone, as a served model gets it"),
]


def run_tests(project: Path, *arguments: str, **variables: str) -> Any:
    """Runs the project's tests in its folder, with the installed plug-in."""
    given = ("-c", "pytest.ini", "-q", "--tb=line", "--basetemp", str(project / "temporary"), *arguments)
    (project / "pytest.ini").write_text("[pytest]\n")
    return run_python("-m", "pytest", *given, "test_mine.py", cwd=project, **variables)


@pytest.mark.long
def test_code_without_a_fault_passes_and_writes_in_its_folder_only(tmp_path: Path, temporary_of_session: Path) -> None:
    project = copy_example("tested", tmp_path)
    before = set(temporary_of_session.iterdir())
    done = run_tests(project)
    assert re.search(r"^10 passed in", done.stdout, re.MULTILINE), done.stdout
    assert {each.name for each in project.iterdir()} - {"__pycache__", ".pytest_cache"} == {
        *("counting.py", "models.py", "pytest.ini", "temporary", "test_mine.py", "trips.py"),
    }
    assert set(temporary_of_session.iterdir()) == before


def test_each_fault_fails_the_test_that_names_it(tmp_path: Path) -> None:
    project = copy_example("tested", tmp_path)
    for file, old, new, *_ in FAULTS:
        edit(project / file, old, new)
    done = run_tests(project, "-k", " or ".join(name for *_, name, _ in FAULTS))
    for *_, name, words in FAULTS:
        assert re.search(rf"AssertionError: .*{words}", done.stdout), (words, done.stdout)
        assert re.search(rf"^FAILED .*{name}", done.stdout, re.MULTILINE), (name, done.stdout)
    assert re.search(r"^4 failed, 6 deselected", done.stdout, re.MULTILINE), done.stdout


def test_averages_without_updates_are_found() -> None:
    v1 = tf.compat.v1

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        x = v1.layers.batch_normalization(features["x"], training=mode == "train")
        loss = v1.losses.sparse_softmax_cross_entropy(labels, v1.layers.dense(x, 3))
        step = v1.train.get_global_step()
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=v1.train.AdamOptimizer().minimize(loss, step))

    with pytest.raises(AssertionError, match="does not update batch_normalization/moving_mean, batch_norm"):
        testing.call_model_fn(model_fn, shape=(4,), classes=3)


def test_rows_become_the_artifacts_of_tfx() -> None:
    import tensorflow_data_validation as tfdv
    from tfx.components import ExampleValidator, SchemaGen

    rows = [{"x": 0.5 * n, "words": ["a", "b"][: n % 3] or None, "n": n} for n in range(9)]
    examples = testing.examples(rows)
    statistics = testing.artifact("ExampleStatistics", examples, made="here")
    assert statistics.get_string_custom_property("made") == "here"
    copied = Path(testing.artifact("ExampleStatistics", statistics.uri).uri)
    assert {each.name for each in copied.glob("*/*")} == {"FeatureStats.pb"}
    assert os.listdir(testing.artifact("ExampleStatistics").uri) == []
    inferred = testing.run_component(SchemaGen, statistics=statistics, infer_feature_shape=True)
    schema = tfdv.load_schema_text(str(Path(inferred["schema"].uri, "schema.pbtxt")))
    own = tfdv.load_schema_text(str(Path(testing.artifact("Schema", rows).uri, "schema.pbtxt")))
    assert {each.name: each.type for each in own.feature} == {each.name: each.type for each in schema.feature}
    assert {each.name: each.shape for each in own.feature} == {each.name: each.shape for each in schema.feature}
    ran = testing.run_component(
        ExampleValidator, statistics=statistics, schema=inferred["schema"], exclude_splits=["eval"]
    )
    assert [Path(each).name for each in Path(ran["anomalies"].uri).iterdir()] == ["Split-train"]
    assert ran.properties == {"exclude_splits": '["eval"]'}
    assert testing.examples(own, 5).split_names == '["train", "eval"]'


def test_images_have_classes_that_can_be_learned() -> None:
    made = testing.examples((4, 4, 3), count=6, classes=3, splits=("all",))
    assert isinstance(made, standard_artifacts.Examples)
    (file,) = Path(made.uri, "Split-all").iterdir()
    spec = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    records = list(tf.data.TFRecordDataset(str(file), "GZIP").as_numpy_iterator())
    parsed = tf.io.parse_example(records, spec)
    images = tf.io.decode_raw(parsed["image"], tf.uint8).numpy().astype(int)
    assert parsed["label"].numpy().tolist() == [0, 1, 2, 0, 1, 2]
    apart = np.abs(images[:, np.newaxis] - images).mean(axis=2)
    assert apart[0, 3] < apart[0, [1, 2, 4, 5]].min() / 2


ALONE = """
import sys

import models
import numpy as np

from tfx_estimator import testing

X = np.random.default_rng(1).standard_normal((32, 5), np.float32)


def test_all():
    testing.overfits(models.classify)
    found = testing.call_model_fn(models.regress, "infer", features={"x": X})
    assert found.predictions["answer"].shape == (32,)
    assert not [name for name in ("tfx", "tensorflow_transform", "apache_beam") if sys.modules.get(name)]
"""


def test_estimators_are_tested_where_tensorflow_is_installed_alone(tmp_path: Path) -> None:
    project = copy_example("tested", tmp_path)
    (project / "site").mkdir()
    (project / "site" / "sitecustomize.py").write_text(SITE)
    (project / "test_mine.py").write_text(ALONE)
    done = run_tests(project, PYTHONPATH=os.pathsep.join(map(str, (project / "site", ROOT / "src", project))))
    assert re.search(r"^1 passed", done.stdout, re.MULTILINE), done.stdout[-3000:] + done.stderr[-3000:]


UNEQUAL = """
import tensorflow as tf

v1 = tf.compat.v1


def model_fn(features, labels, mode):
    x = v1.layers.batch_normalization(v1.layers.dense(features["x"], 8), training=mode == "train")
    loss = v1.losses.sparse_softmax_cross_entropy(labels, v1.layers.dense(x, 3))
    with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        step = v1.train.get_global_step()
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=v1.train.AdamOptimizer().minimize(loss, step))
"""


def test_statistics_of_a_part_of_the_batch_are_found(importable: Path) -> None:
    (importable / "normalises.py").write_text(UNEQUAL)
    import normalises

    with pytest.raises(
        AssertionError, match=r"after 5 steps under mirrored:2, .*moving_mean is .* apart from one device"
    ):
        testing.same_under(["mirrored:2"], normalises.model_fn, shape=(4,), classes=3, examples=12)


def test_a_feature_made_of_the_label_is_found() -> None:
    rows = [{"fare": np.float32(n + 1), "tips": float(n)} for n in range(6)]

    def leaking(inputs: Any) -> Any:
        return {"ratio": inputs["tips"] / inputs["fare"], "tips": inputs["tips"]}

    # As an earlier test may leave it.
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        with pytest.raises(AssertionError, match="ratio cannot be served: made of tips, which a request has not"):
            testing.preprocess(leaking, rows, label="tips")
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


def test_values_and_features_of_any_kind_are_taken() -> None:
    v1 = tf.compat.v1
    integer = testing.artifact("Integer", 4)
    assert (integer.read(), Path(integer.uri).read_text()) == (4, "4")

    def words(features: Any, labels: Any, mode: str) -> Any:
        column = tf.feature_column.categorical_column_with_hash_bucket("w", 9)
        columns = [tf.feature_column.indicator_column(column)]
        logits = v1.layers.dense(v1.feature_column.input_layer(features, columns), 3)
        if mode == "infer":
            return tf.estimator.EstimatorSpec(mode, {"probabilities": tf.nn.softmax(logits)})
        loss = v1.losses.softmax_cross_entropy(labels, logits)
        step = v1.train.get_global_step()
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=v1.train.AdamOptimizer(0.1).minimize(loss, step))

    sparse = tf.sparse.from_dense([["a", ""], ["b", "b"], ["c", "a"]])
    assert testing.call_model_fn(words, "predict", features={"w": sparse}).predictions["probabilities"].shape == (3, 3)
    testing.overfits(words, features={"w": sparse}, labels=np.eye(3, dtype=int))


def test_a_compiled_keras_model_is_taken() -> None:
    layers = tf.keras.layers
    for rate in (0.01, 1e-9):
        model = tf.keras.Sequential([layers.Dense(32, "relu", input_shape=(6,)), layers.Dense(4)])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.Adam(rate), loss)
        if rate == 0.01:
            assert len(testing.overfits(model, shape=(6,), classes=4)) == 100
        else:
            with pytest.raises(AssertionError, match=r"the loss went from .* in 100 steps"):
                testing.overfits(model, shape=(6,), classes=4)
    binary = tf.keras.Sequential([layers.Dense(32, "relu", input_shape=(6,)), layers.Dense(1, "sigmoid")])
    binary.compile(tf.keras.optimizers.Adam(0.01), "binary_crossentropy")
    testing.overfits(binary, shape=(6,), classes=2)
    one, other = layers.Input([2]), layers.Input([3])
    both = tf.keras.Model([one, other], layers.Dense(3)(layers.Concatenate()([one, other])))
    both.compile(tf.keras.optimizers.Adam(0.1), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    testing.overfits(both, features=[np.eye(6)[:, :2], np.eye(6)[:, 2:5]], labels=np.arange(6) % 3)
