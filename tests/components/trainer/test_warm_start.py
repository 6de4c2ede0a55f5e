"""Trainings that start from another one's weights, on every path and from every kind of output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.artifacts import artifact
from tests.components.trainer.conftest import LABELS, PATHS, SHAPE, Training
from tests.equivalence.conftest import read_weights
from tests.refusals import refused
from tfx_estimator.components.trainer.estimator.distribute import warm_start
from tfx_estimator.components.trainer.job import Job, TaskContext
from tfx_estimator.components.trainer.protocol.events import ProgressReader, ProgressWriter
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, TaskSpec
from tfx_estimator.components.trainer.settings import Settings, built_in_function
from tfx_estimator.components.trainer.supervisor.report import Report
from tfx_estimator.components.trainer.task.user_code import tell, warm_start_of
from tfx_estimator.model_fn.user_models.warm_start import match, warm_keras
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.warm_start import WarmStart

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# The rate is 0 from the first step on, so the weights stay as loaded.
STILL = {"name": "momentum", "schedule": "piecewise", "boundaries": [1], "values": [0, 0]}
MIRRORED = {"train": {"strategy": "mirrored", "devices": {"cpu": 2}}}


class Warm:
    """Trains once on each path, and starts other trainings from the results."""

    def __init__(self, training: Training, declaration) -> None:
        self.training = training
        self.declaration = declaration
        self._first: dict[str, tuple[Path, str]] = {}

    def train(self, labels=LABELS, **trainer) -> tuple[Path, str]:
        """Returns the folders of the model and the run."""
        declared = {"model": "mnist_cnn", "train_steps": 2, **trainer}
        settings = Settings(
            declaration=self.declaration(**declared),
            image_shape=SHAPE,
            label_names=labels,
            path=declared.get("path", "estimator"),
        )
        model, run = self.training.run(settings, declared["train_steps"], **built_in_function(settings.trainer))
        return model, run.uri

    def first(self, path: str) -> tuple[Path, str]:
        """Returns the training that others start from."""
        if path not in self._first:
            self._first[path] = self.train(path=path)
        return self._first[path]


@pytest.fixture(scope="module")
def warm(tmp_path_factory, digits, declaration) -> Warm:
    return Warm(Training(tmp_path_factory.mktemp("Trainer"), digits), declaration)


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray], *but: str) -> None:
    """Asserts that the trained weights of two checkpoints are equal, except some."""
    one, other = _by_layer(one), _by_layer(other)
    assert len(one) > 1
    for name in one:
        equal = one[name].shape == other[name].shape and np.array_equal(one[name], other[name])
        assert equal is (name not in but), name


def _by_layer(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the trained variables, without the prefix of an Estimator's graph."""
    short = {"/".join(name.split("/")[-2:]): value for name, value in weights.items()}
    return {name: value for name, value in short.items() if name.endswith(("/kernel", "/bias", "/gamma", "/beta"))}


@pytest.mark.long
def test_keras_starts_from_an_estimators_checkpoint_and_an_estimator_from_a_keras_model(warm, caplog):
    caplog.set_level("INFO", "absl.tfx_estimator")
    _, run = warm.first("estimator")
    before = read_weights(run)
    model, other = warm.train(path="keras", optimizer=STILL, warm_start={"checkpoint": run}, distribution=MIRRORED)
    same(before, read_weights(other))
    assert "training begins with 6 of 6 variables" in caplog.text
    assert "left out" not in caplog.text
    # Another head, and a layer that starts fresh.
    caplog.clear()
    anew = {"model": str(model), "exclude": ["conv1/*"]}
    _, third = warm.train((*LABELS, "ten"), optimizer=STILL, warm_start=anew, seed=7, distribution=MIRRORED)
    found = read_weights(third)
    same(before, found, "conv1/kernel", "conv1/bias", "logits/kernel", "logits/bias")
    assert "training begins with 2 of 6 variables" in caplog.text
    assert "logits/bias, which is [11] here and [10] there" in caplog.text
    assert "conv1/kernel, by trainer.warm_start.exclude" in caplog.text
    assert found["global_step"] == 2


@pytest.mark.long
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("strategy", ["one_device", "multi_worker_mirrored:2", "parameter_server:2"])
def test_every_path_starts_from_the_output_of_every_other(warm, path, strategy, caplog):
    caplog.set_level("INFO", "absl.tfx_estimator")
    for other in PATHS:
        model, run = warm.first(other)
        for start in ({"checkpoint": run}, {"model": str(model)}):
            distribution = {"train": strategy, "max_restarts": 0}
            _, begun = warm.train(path=path, optimizer=STILL, seed=9, warm_start=start, distribution=distribution)
            same(read_weights(run), read_weights(begun))


def test_an_estimator_starts_from_them_under_central_storage(warm):
    _, run = warm.first("estimator")
    central = {"train": {"strategy": "central_storage", "devices": {"cpu": 2}}}
    _, begun = warm.train(optimizer=STILL, seed=9, warm_start={"checkpoint": run}, distribution=central)
    same(read_weights(run), read_weights(begun))


@pytest.mark.long
@pytest.mark.parametrize("path", PATHS)
def test_a_resumed_training_loads_no_weights(warm, path, caplog):
    caplog.set_level("INFO", "absl.tfx_estimator")
    _, run = warm.first("keras")
    start = {"path": path, "seed": 11, "warm_start": {"checkpoint": run}}
    warm.train(**start, optimizer={"schedule": "constant"})
    assert caplog.text.count("training begins with") == 1
    warm.train(**start, optimizer={"schedule": "constant"}, train_steps=4)
    assert caplog.text.count("training begins with") == 1
    assert "resumes from there, to 4" in caplog.text


@pytest.mark.long
@pytest.mark.parametrize("path", PATHS)
def test_training_starts_from_the_base_model_of_a_pipeline(warm, path):
    model, run = warm.first("keras")
    inputs = warm.training.inputs
    warm.training.inputs = {**inputs, "base_model": [artifact("Model", model)]}
    try:
        _, begun = warm.train(path=path, optimizer=STILL, seed=13)
    finally:
        warm.training.inputs = inputs
    same(read_weights(run), read_weights(begun))


MODEL_FN = """
import tensorflow as tf

def model_fn(features, labels, mode, params):
    images = tf.reshape(features["image"], [-1, 784])
    hidden = tf.compat.v1.layers.dense(images, 8, name="hidden")
    hidden = tf.compat.v1.layers.batch_normalization(hidden, name="norm", training=mode == "train")
    logits = tf.compat.v1.layers.dense(hidden, params["num_classes"], name="scores")
    outputs = {"probabilities": tf.nn.softmax(logits)}
    if mode == "infer":
        return tf.estimator.EstimatorSpec(mode, predictions=outputs, export_outputs={
            "serving_default": tf.estimator.export.PredictOutput(outputs)})
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    step = tf.compat.v1.train.get_global_step()
    train_op = tf.compat.v1.train.AdamOptimizer(params.get("rate", 0.1)).minimize(loss, step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
"""


@pytest.mark.long
def test_a_users_model_fn_starts_from_weights_without_slots(warm, importable):
    (importable / "warm_model.py").write_text(MODEL_FN)
    own = {"model": "warm_model:model_fn"}
    _, run = warm.train(**own, params={"rate": 0.1})
    _, begun = warm.train(**own, params={"rate": 0.0}, seed=5, warm_start={"checkpoint": run})
    one, other = read_weights(run), read_weights(begun)
    same(one, other)
    # Two steps from 0, not from 2.
    np.testing.assert_allclose(other["beta1_power"], 0.9**3, rtol=1e-5)


def test_missing_weights_are_reported_with_their_path(tmp_path):
    settings = Settings(arguments={"warm_start": {"checkpoint": str(tmp_path / "model.ckpt-3")}})
    job = Job("{}", "{}", {}, str(tmp_path), settings)
    with pytest.raises(UserCodeError, match=r"no weights are in .*model\.ckpt-3"):
        warm_start_of(TaskContext(job, TaskSpec(CHIEF, 0, 1), ProgressWriter(str(tmp_path / "progress"))))


def test_weights_that_match_no_variable_are_refused_with_the_names_of_both(tmp_path):
    model = tf.keras.Sequential([tf.keras.layers.Dense(2, name="there")])
    model.build((None, 3))
    prefix = tf.train.Checkpoint(model=model).save(str(tmp_path / "model.ckpt"))
    theirs = "compare with the checkpoint's: save_counter, there/bias, there/kernel;"
    with pytest.raises(UserCodeError, match=f"(?s)the model has here/kernel.*{theirs}"):
        match(prefix, {"here/kernel": [3, 2], "other/kernel": [3, 2]}, ["other/*"])
    matched = match(prefix, {"there/kernel": [3, 2], "there/bias": [5]}, [])
    assert list(matched.keys) == ["there/kernel"]
    assert matched.left == "there/bias, which is [5] here and [2] there"


def test_the_averages_of_a_normalisation_are_loaded_too(tmp_path):
    def network(value: float) -> tf.keras.Model:
        model = tf.keras.Sequential([tf.keras.layers.BatchNormalization(name="norm")])
        model.build((None, 3))
        model.layers[0].moving_mean.assign([value] * 3)
        return model

    prefix = tf.train.Checkpoint(model=network(5.0)).save(str(tmp_path / "model.ckpt"))
    begun = network(0.0)
    warm_keras(begun, prefix, ())
    assert begun.layers[0].moving_mean.numpy().tolist() == [5, 5, 5]


def test_variables_of_the_same_name_are_left_out_and_reported(tmp_path):
    def towers(value: float) -> tf.keras.Model:
        def tower(name: str) -> tf.keras.Model:
            return tf.keras.Sequential([tf.keras.layers.Dense(2, name="hidden", use_bias=False)], name=name)

        image = tf.keras.Input([3])
        joined = tower("left")(image) + tower("right")(image)
        model = tf.keras.Model(image, tf.keras.layers.Dense(2, name="head", use_bias=False)(joined))
        model.set_weights([weight * 0 + value for weight in model.get_weights()])
        return model

    prefix = tf.train.Checkpoint(model=towers(5.0)).save(str(tmp_path / "model.ckpt"))
    begun = towers(0.0)
    matched = warm_keras(begun, prefix, ())
    assert [float(weight.numpy()[0, 0]) for weight in begun.weights] == [0, 0, 5]
    assert matched.summary.startswith("training begins with 1 of 3 variables")
    assert matched.left == "hidden/kernel, as 2 variables of the model are called"


WORDS = ("red", "green", "blue", "black")


def _classifier(kind: str, folder: Path, vocabulary: tuple[str, ...]):
    columns = tf.feature_column
    words = columns.categorical_column_with_vocabulary_list("word", vocabulary)
    # TF1's feature columns partition their variables: into one part without parameter servers.
    kinds = {"tf1": tf.compat.v1.estimator.DNNLinearCombinedClassifier, "tf2": tf.estimator.DNNLinearCombinedClassifier}
    return kinds[kind](
        model_dir=str(folder),
        linear_feature_columns=[words],
        dnn_feature_columns=[columns.embedding_column(words, 3)],
        dnn_hidden_units=[5],
        dnn_optimizer="SGD",
        linear_optimizer="SGD",
    )


def _words():
    features = {"word": tf.constant([["red"], ["blue"]])}
    return tf.data.Dataset.from_tensors((features, tf.constant([[0], [1]]))).repeat()


@pytest.mark.parametrize("kind", ["tf1", "tf2"])
def test_an_estimators_vocabulary_of_another_size_starts_fresh_and_is_logged(kind, tmp_path, caplog):
    caplog.set_level("INFO", "absl.tfx_estimator")
    before, after, file = tmp_path / "before", tmp_path / "after", str(tmp_path / "progress")
    context = TaskContext(Job("{}", "{}", {}, str(tmp_path)), TaskSpec(CHIEF, 0, 1), ProgressWriter(file))
    _classifier(kind, before, WORDS[:3]).train(_words, steps=1)
    begun = _classifier(kind, after, WORDS)
    warm_start(begun, WarmStart(checkpoint=str(before)), lambda matched: tell(context, matched))
    # The weights before the first step.
    first: dict[str, np.ndarray] = {}
    begun.train(_words, hooks=[_first_values(first)], steps=1)
    there = read_weights(str(before))
    embedding = "dnn/input_from_feature_columns/input_layer/word_embedding/embedding_weights"
    linear, taken = "linear/linear_model/word/weights", first.keys() & there.keys() - {"global_step"}
    assert len(taken) >= 7
    left = {name for name in taken if first[name].shape != there[name].shape}
    assert left == {embedding, linear}
    for name in taken - left:
        np.testing.assert_array_equal(first[name], there[name], err_msg=name)
    assert np.abs(there["dnn/hiddenlayer_0/kernel"]).sum() > 0
    report = Report(None, None)
    for event in ProgressReader(file).read():
        report.record(context.task, event)
    assert "training begins with 5 of 7 variables" in caplog.text
    assert f"trainer.warm_start left out {embedding}, which is [4, 3] here and [3, 3] there; " in caplog.text
    assert f"{linear}, which is [4, 1] here and [3, 1] there" in caplog.text


def _first_values(values: dict[str, np.ndarray]):
    """A hook that records the model's initial variables; single parts under the whole variable's name."""

    class Keep(tf.compat.v1.train.SessionRunHook):
        def after_create_session(self, session, coord) -> None:
            variables = tf.compat.v1.trainable_variables()
            found = session.run({each.name.partition(":")[0].removesuffix("/part_0"): each for each in variables})
            values.update(found)

    return Keep()


def test_a_partitioned_variable_starts_from_one_with_other_parts(tmp_path):
    v1 = tf.compat.v1

    def estimator(folder: str, parts: int, words: int) -> tf.estimator.Estimator:
        def model_fn(features, labels, mode):
            with v1.variable_scope("words", partitioner=v1.fixed_size_partitioner(parts)):
                table = v1.get_variable("table", [words, 3])
                kernel = v1.get_variable("kernel", [4, 3])
            found = v1.nn.embedding_lookup(table, tf.range(2), partition_strategy="div")
            loss = tf.reduce_sum(found) + tf.reduce_sum(kernel.as_tensor())
            train_op = v1.train.GradientDescentOptimizer(0.0).minimize(loss, v1.train.get_global_step())
            return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

        return tf.estimator.Estimator(model_fn, str(tmp_path / folder))

    estimator("two", 2, 6).train(_words, steps=1)
    matches = []
    for folder, parts, words in (("three", 3, 6), ("one", 1, 6), ("more", 3, 9)):
        begun = estimator(folder, parts, words)
        warm_start(begun, WarmStart(checkpoint=str(tmp_path / "two")), matches.append)
        begun.train(_words, steps=1)
    weights = {name: read_weights(str(tmp_path / name)) for name in ("two", "three", "one", "more")}
    for name, folders in {"table": ("three", "one"), "kernel": ("three", "one", "more")}.items():
        for folder in folders:
            np.testing.assert_array_equal(weights[folder][f"words/{name}"], weights["two"][f"words/{name}"])
    assert [each.left for each in matches] == ["", "", "words/table, which is [9, 3] here and [6, 3] there"]


@pytest.fixture
def stored(tmp_path):
    """A Keras checkpoint, its variables and their shapes."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(64, name="hidden"), tf.keras.layers.Dense(4, name="logits")])
    model.build((None, 32))
    prefix = tf.train.Checkpoint(model=model).save(str(tmp_path / "model.ckpt"))
    return prefix, {weight.name.partition(":")[0]: weight.shape.as_list() for weight in model.weights}


@pytest.mark.parametrize("kind", ["Keras", "V1"])
@pytest.mark.parametrize("damage", ["no data", "cut data", "no index"])
def test_damaged_weights_are_reported_with_their_path(stored, tmp_path, kind, damage):
    prefix, shapes = stored
    if kind == "V1":
        prefix = str(tmp_path / "graph.ckpt")
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            for name, shape in shapes.items():
                tf.compat.v1.get_variable(name, shape)
            session.run(tf.compat.v1.global_variables_initializer())
            tf.compat.v1.train.Saver().save(session, prefix)
    assert len(match(prefix, shapes, ()).keys) == 4
    data, index = Path(f"{prefix}.data-00000-of-00001"), Path(f"{prefix}.index")
    if damage == "no data":
        data.unlink()
    elif damage == "cut data":
        data.write_bytes(data.read_bytes()[:100])
    else:
        index.write_bytes(b"no table")
    with refused(UserCodeError, f"trainer.warm_start: the checkpoint {prefix} is damaged or incomplete: ") as caught:
        match(prefix, shapes, ())
    assert caught.value.todo == "copy them again from their source, or name another checkpoint"


@pytest.mark.parametrize("scope", ["", "classifier/"])
def test_a_pattern_excludes_the_same_variables_with_and_without_the_models_name(stored, scope):
    prefix, shapes = stored
    shapes = {f"{scope}{name}": shape for name, shape in shapes.items()}

    def taken(*exclude: str) -> list[str]:
        return sorted(name.removeprefix(scope) for name in match(prefix, shapes, exclude).keys)

    assert taken("logits/*") == taken(f"{scope}logits/*") == ["hidden/bias", "hidden/kernel"]
    assert taken("*/bias") == ["hidden/kernel", "logits/kernel"]
    # Only in the checkpoint, not in this model: it is never loaded.
    assert len(taken("save_counter")) == 4
    # Keras used to exclude each bias, and an Estimator none.
    for pattern in ("bias", "logit/*", "[x]", "", "Logits/*"):
        what = f"trainer.warm_start.exclude: no variable of the model matches `{pattern}`"
        with refused(UserCodeError, what, expected="hidden/bias, hidden/kernel, logits/bias, logits/kernel") as caught:
            taken(pattern)
        assert pattern != "logit/*" or caught.value.todo == "did you mean `logits/*`?"
    with refused(UserCodeError, "trainer.warm_start.exclude: * excludes all weights in"):
        taken("*")
