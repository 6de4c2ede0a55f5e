"""An exported graph becomes a layer that Keras trains like the Estimator; and refusals of graphs that cannot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tfx_estimator.model_fn.bridge.examples import files_of
from tfx_estimator.model_fn.bridge.graph import conversion
from tfx_estimator.model_fn.bridge.written import load
from tfx_estimator.pipeline.base.errors import DataError, NotEqualError, UserCodeError
from tfx_estimator.pipeline.testing.serving import serialize

pytestmark = pytest.mark.equivalence

v1 = tf.compat.v1
_draw = np.random.RandomState(5)
FEATURES: dict[str, np.ndarray] = {
    "sizes": _draw.rand(40, 3).astype(np.float32),
    "rooms": _draw.randint(0, 4, 40).astype(np.int32),
    "words": np.array([f"w{number}".encode() for number in _draw.randint(0, 9, 40)]),
}
LABELS = (FEATURES["sizes"].sum(1) > 1.5).astype(np.int64)


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    """Plain variables and gradients, which do not change an embedding's rows that no example has."""
    words = tf.strings.to_hash_bucket_fast(features["words"], 20)
    with v1.variable_scope("net"):
        table = v1.get_variable("table", [20, 2])
        inputs = tf.concat([features["sizes"], tf.one_hot(features["rooms"], 4), tf.gather(table, words)], 1)
        hidden = tf.nn.tanh(tf.matmul(inputs, v1.get_variable("first", [9, 5])))
        logits = tf.matmul(hidden, v1.get_variable("second", [5, 2])) + v1.get_variable("bias", [2])
    predictions = {"logits": logits, "class_ids": tf.argmax(logits, 1)}
    if mode == "infer":
        return tf.estimator.EstimatorSpec(mode, predictions)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    step = v1.train.GradientDescentOptimizer(0.5).minimize(loss, v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, predictions, loss, step)


def batches() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).batch(40).repeat()


def raw() -> Any:
    with_shape = {name: [None, *each.shape[1:]] for name, each in FEATURES.items()}
    kinds = {"sizes": tf.float32, "rooms": tf.int32, "words": tf.string}
    given = {name: v1.placeholder(kinds[name], shape, name) for name, shape in with_shape.items()}
    return tf.estimator.export.ServingInputReceiver(given, given)


def write(path: Path, features: dict[str, np.ndarray], compression: str = "") -> str:
    """Writes a TFRecord file of tf.Examples, and returns its path."""
    rows = [dict(zip(features, values)) for values in zip(*features.values())]
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in serialize(rows):
            writer.write(record)
    return str(path)


def keep(folder: str, output: Path, examples: str, answer: str = "") -> Any:
    return conversion.keep(folder, files_of(examples), str(output), answer)


def methods(folder: str) -> dict[str, str]:
    """Returns the methods of a SavedModel's signatures."""
    (graph,) = saved_model_pb2.SavedModel.FromString(Path(folder, "saved_model.pb").read_bytes()).meta_graphs
    return {name: each.method_name for name, each in graph.signature_def.items() if each.method_name}


def test_a_step_of_keras_equals_the_estimators_next_step(tmp_path: Path) -> None:
    estimator, output = tf.estimator.Estimator(model_fn, str(tmp_path / "model_dir")), tmp_path / "kept"
    estimator.train(batches, steps=3)
    exported = estimator.export_saved_model(str(tmp_path / "exports"), raw).decode()
    examples = write(tmp_path / "examples.gz", FEATURES, "GZIP")
    proof = keep(exported, output, examples)
    assert (proof.examples, proof.compared, proof.gradients, proof.still) == (40, "logits", 4, [])
    assert max(*proof.logits.values(), *proof.kept.values()) <= 1e-6
    model = load(str(output)).network()
    old = np.array([each["logits"] for each in estimator.predict(lambda: batches().take(1))])
    given = {name: tf.constant(each) for name, each in FEATURES.items()}
    np.testing.assert_allclose(model(given), old, rtol=0, atol=1e-6)
    before = {each.name: each.numpy() for each in model.trainable_weights}
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.SGD(0.5), loss)
    model.train_on_batch(given, LABELS)
    estimator.train(batches, steps=1)
    for each in model.trainable_weights:
        np.testing.assert_allclose(each, estimator.get_variable_value(each.name), rtol=0, atol=1e-6)
        assert np.abs(each.numpy() - before[each.name]).max() > 1e-4
    tensors = json.loads((output / "mapping.json").read_text())["tensors"]
    assert {each["tensor"]: (each["kind"], each["trained"]) for each in tensors} == {
        "global_step": ("step", False),
        **{f"net/{name}": ("weight", True) for name in ("table", "first", "second", "bias")},
    }
    places = {each["place"]: each["tensor"] for each in tensors}
    assert [f"{places[f'weights[{index}]']}:0" for index in range(5)] == [each.name for each in model.weights]
    assert json.loads((output / "proof.json").read_text())["holds"]


def wide_and_deep(folder: Path) -> Any:
    column, vocabulary = tf.feature_column, folder / "vocabulary.txt"
    vocabulary.write_text("w1\nw3\nw4\n")
    words = column.categorical_column_with_vocabulary_file("words", str(vocabulary), num_oov_buckets=2)
    sizes, rooms = column.numeric_column("sizes", (3,)), column.categorical_column_with_identity("rooms", 4)
    return v1.estimator.DNNLinearCombinedClassifier(
        str(folder / "model_dir"),
        linear_feature_columns=[words, rooms, column.crossed_column([words, rooms], 30)],
        dnn_feature_columns=[sizes, column.embedding_column(words, 3), column.indicator_column(rooms)],
        dnn_hidden_units=[6],
        batch_norm=True,
    )


def test_a_canned_estimator_keeps_its_columns_averages_and_signatures(tmp_path: Path) -> None:
    estimator, output = wide_and_deep(tmp_path), tmp_path / "kept"
    estimator.train(batches, steps=7)
    spec = {
        "sizes": tf.io.FixedLenFeature([3], tf.float32),
        "rooms": tf.io.FixedLenFeature([1], tf.int64),
        "words": tf.io.VarLenFeature(tf.string),
    }
    receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)
    exported = estimator.export_saved_model(str(tmp_path / "exports"), receiver).decode()
    examples = write(tmp_path / "examples", FEATURES)
    proof = keep(exported, output, examples)
    (tmp_path / "vocabulary.txt").unlink()
    assert (proof.examples, proof.compared, proof.still) == (40, "logits", [])
    assert max(*proof.logits.values(), *proof.kept.values()) <= 1e-6
    network = load(str(output))
    model = network.network()
    averages = [each for each in model.non_trainable_weights if "moving_" in each.name]
    assert proof.gradients == len(model.weights) - len(averages) - 1
    assert len(averages) == 2
    before = [each.numpy() for each in averages]
    records = list(tf.data.TFRecordDataset(examples).as_numpy_iterator())
    model.compile("adam", tf.keras.losses.BinaryCrossentropy(from_logits=True))
    losses = model.fit({"examples": tf.constant(records)}, LABELS, 40, epochs=9, verbose=0).history["loss"]
    assert losses[-1] < losses[0] - 1e-4
    for each, old in zip(averages, before):
        np.testing.assert_array_equal(each, old)
    network.export(model, str(tmp_path / "trained"))
    answers = [tf.saved_model.load(each) for each in (exported, str(tmp_path / "trained"))]
    old, new = ({name: each.structured_outputs for name, each in one.signatures.items()} for one in answers)
    assert {name: set(each) for name, each in new.items()} == {name: set(each) for name, each in old.items()}
    assert methods(str(tmp_path / "trained")) == methods(exported)
    assert methods(exported)["classification"] == "tensorflow/serving/classify"
    served = answers[1].signatures["predict"](examples=tf.constant(records))["logits"]
    np.testing.assert_allclose(served, model({"examples": tf.constant(records)}), rtol=0, atol=1e-6)


def export(
    folder: Path,
    answers: Callable[[Any, Any, Any], dict[str, Any]],
    width: int | None = 3,
    signatures: tuple[str, ...] = ("serving_default",),
    **options: Any,
) -> str:
    """Exports a graph of TensorFlow 1: outputs made of an input, x, and two trained variables."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, width], "x")
        one, two = (v1.get_variable(name, [3, 2], **options) for name in ("one", "two"))
        outputs = answers(x, one, two)
        session.run(v1.global_variables_initializer())
        signature = v1.saved_model.predict_signature_def({"x": x}, outputs)
        builder = v1.saved_model.Builder(str(folder))
        builder.add_meta_graph_and_variables(session, ["serve"], dict.fromkeys(signatures, signature))
        builder.save()
    return str(folder)


def test_reference_variables_become_variables_that_keras_trains(tmp_path: Path) -> None:
    def answers(x: Any, one: Any, two: Any) -> dict[str, Any]:
        """Counts its calls by an operation that returns the reference that it takes."""
        calls = v1.get_variable("calls", [], initializer=v1.zeros_initializer(), trainable=False, use_resource=False)
        return {"logits": x @ one + tf.gather(two, [0]) * x[:, :1], "calls": v1.assign_add(calls, 1.0)}

    exported = export(tmp_path / "export", answers, use_resource=False)
    examples = write(tmp_path / "examples", {"x": FEATURES["sizes"]})
    kept = keep(exported, tmp_path / "kept", examples)
    assert (kept.logits, kept.gradients, kept.still) == ({"estimator": 0.0}, 2, [])
    tensors = json.loads((tmp_path / "kept" / "mapping.json").read_text())["tensors"]
    trained = {each["tensor"]: each["trained"] for each in tensors}
    assert trained == {"one": True, "two": True, "calls": False}
    network = load(str(tmp_path / "kept"))
    given = {"x": tf.constant(FEATURES["sizes"])}
    assert [float(network.network(output="calls")(given)) for _ in range(2)] == [1.0, 1.0]
    model = network.network()
    calls = model.get_layer("graph").exported.signatures["serving_default"]
    assert [float(calls(**given)["calls"]) for _ in range(2)] == [1.0, 2.0]
    with tf.Graph().as_default(), v1.Session() as session:
        v1.saved_model.load(session, ["serve"], exported)
        old = session.run("add:0", {"x:0": FEATURES["sizes"]})
    np.testing.assert_array_equal(model(given), old)
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    model.train_on_batch(given, np.zeros([40, 2]))
    network.export(model, str(tmp_path / "trained"))
    served = tf.saved_model.load(str(tmp_path / "trained")).signatures["serving_default"](**given)["logits"]
    np.testing.assert_allclose(served, model(given), rtol=0, atol=1e-6)
    assert np.abs(served - old).max() > 1e-3


def test_weights_that_the_output_does_not_train_are_listed(tmp_path: Path) -> None:
    # The number of values in an example is unknown.
    exported = export(tmp_path / "export", lambda x, one, two: {"left": x @ one, "right": x @ one + x @ two}, None)
    examples = write(tmp_path / "examples", {"x": FEATURES["sizes"]})
    kept = keep(exported, tmp_path / "kept", examples, "serving_default:left")
    assert (kept.signature, kept.compared) == ("serving_default", "left")
    assert (kept.gradients, kept.still) == (2, ["two"])
    assert "changes 1 of 2 trained weights, and leaves two" in "\n".join(kept.lines())
    assert sorted(each.name for each in (tmp_path / "kept").iterdir()) == sorted(
        ["graph", "mapping.json", "network.py", "proof.json"]
    )
    model = load(str(tmp_path / "kept")).network(output="right")
    given = {"x": tf.constant(FEATURES["sizes"])}
    old = tf.saved_model.load(exported).signatures["serving_default"](**given)["right"]
    np.testing.assert_allclose(model(given), old, rtol=0, atol=1e-6)


def test_a_weight_without_a_gradient_is_unchanged_and_listed(tmp_path: Path) -> None:
    exported = export(tmp_path / "export", lambda x, one, two: {"y": tf.round(x @ one) + x @ two})
    proof = keep(exported, tmp_path / "kept", write(tmp_path / "examples", {"x": FEATURES["sizes"]}))
    assert (proof.gradients, proof.still) == (2, ["one"])
    model = load(str(tmp_path / "kept")).network()
    before = [each.numpy() for each in model.trainable_weights]
    model.compile("adam", "mse")
    model.train_on_batch({"x": tf.constant(FEATURES["sizes"])}, tf.zeros([40, 2]))
    one, two = (np.abs(each - old).max() for each, old in zip(model.trainable_weights, before))
    assert (one, two > 1e-4) == (0, True)


def test_the_only_output_is_chosen_even_if_several_signatures_have_it(tmp_path: Path) -> None:
    signatures = ("price", "serving_default")
    exported = export(tmp_path / "export", lambda x, one, two: {"y": x @ one + x @ two}, signatures=signatures)
    kept = keep(exported, tmp_path / "kept", write(tmp_path / "examples", {"x": FEATURES["sizes"]}))
    assert (kept.signature, kept.compared) == ("serving_default", "y")


def test_exports_that_cannot_be_trained_or_differ_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    examples = write(tmp_path / "examples", {"x": FEATURES["sizes"]})
    other = write(tmp_path / "other", {"y": FEATURES["sizes"]})

    def passed_on(variable: Any) -> Any:
        return tf.raw_ops.RefIdentity(input=variable)

    def both(x: Any, one: Any, two: Any) -> dict[str, Any]:
        return {"left": x @ one, "right": x @ one + x @ two}

    exports = {
        "two": export(tmp_path / "two", both),
        "passed_on": export(
            tmp_path / "passed_on", lambda x, one, two: {"y": x @ one + x @ passed_on(two)}, use_resource=False
        ),
        "rounded": export(tmp_path / "rounded", lambda x, one, two: {"y": tf.round(x @ one + x @ two)}),
        "flat": export(tmp_path / "flat", lambda x, one, two: {"y": 0 * (x @ one + x @ two)}),
        "infinite": export(tmp_path / "infinite", lambda x, one, two: {"y": (x @ one + x @ two) / 0}),
        "drawn": export(tmp_path / "drawn", lambda x, one, two: {"y": x @ one + x @ two * tf.random.uniform([])}),
        "constant": export(tmp_path / "constant", lambda x, one, two: {"y": x @ one + x @ two}, trainable=False),
    }
    tf.saved_model.save(tf.Module(), str(tmp_path / "of_2"))
    refused: list[tuple[str, str, str, type, str]] = [
        ("two", "", examples, UserCodeError, "serving_default:left, serving_default:right"),
        ("two", "serving_default:middle", examples, UserCodeError, "no signature has an output serving_default:middle"),
        ("two", "serving_default:right", other, DataError, "Feature: x .* is required"),
        ("passed_on", "", examples, UserCodeError, "RefIdentity of the export is a RefIdentity on a ref"),
        ("rounded", "", examples, UserCodeError, "y depends on no trained weight by operations"),
        ("flat", "", examples, NotEqualError, "did not change: 2 of 2(?s:.)*name another output by --answer"),
        ("infinite", "", examples, NotEqualError, "y of the estimator: inf(?s:.)*outputs are finite"),
        ("drawn", "", examples, NotEqualError, r"y of the estimator: \d(?s:.)*without random operations"),
        ("constant", "", examples, UserCodeError, "lists no trained variable"),
    ]
    for name, answer, files, kind, words in refused:
        with pytest.raises(kind, match=words):
            keep(exports[name], tmp_path / "kept", files, answer)
    assert not list(tmp_path.glob("*kept*")) + list(tmp_path.glob(".conv*"))
