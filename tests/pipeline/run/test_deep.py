"""Mistakes in the user's code that `validate --deep` finds by running it on made-up examples."""

from __future__ import annotations

import pytest
from PIL import Image

from tests.examples import EXAMPLES

pytestmark = pytest.mark.timeout(400)


def test_a_complete_model_fn_passes_and_its_checks_are_listed(deep):
    stdout = deep().out
    assert "    tried: standardize on made-up images of 28x28x1; " in stdout
    assert "a step, an evaluation and the export of mine:model_fn, with batches of 300; " in stdout
    assert "its served outputs: classes, scores; evaluated is `scores` (" in stdout


NETWORK = """
import tensorflow as tf


def network(num_classes):
    dense = tf.keras.layers.Dense(num_classes, name="logits")
    return tf.keras.Sequential([tf.keras.layers.Flatten(), dense])
"""


@pytest.mark.parametrize("path", ["keras", pytest.param("estimator", marks=pytest.mark.long)])
def test_a_network_is_checked_on_the_declared_path_and_a_head_that_is_not_float32_is_reported(deep, path):
    stdout = deep(trainer=f'model: "nets:network", path: {path}, precision: mixed_bfloat16', nets=NETWORK).out
    assert "a step, an evaluation and the export of nets:network, with batches of 300; " in stdout
    assert "evaluated is `probabilities` (" in stdout
    assert "; its logits are computed in bfloat16: give the last layer dtype='float32'" in stdout


@pytest.mark.long
@pytest.mark.parametrize(
    "divided",
    [
        "model_parallel: {devices: [cpu:0, cpu:1], layers: {logits: 1}}",
        "pipeline_parallel: {stages: 2, microbatches: 2}",
    ],
)
def test_a_divided_network_is_checked_on_the_devices_of_its_parts(deep, divided):
    stdout = deep(trainer=f'model: "nets:network", path: keras, {divided}', nets=NETWORK).out
    assert "evaluated is `probabilities` (" in stdout


@pytest.mark.long
@pytest.mark.parametrize("path", ["keras", "estimator"])
def test_a_layer_that_xla_cannot_compile_for_the_declared_replicas_is_reported(deep, path):
    """The dry run itself has one replica."""
    replicas = "xla: true, distribution: {train: 'mirrored:2'}"
    norm = "tfx_estimator.model_fn.layers.SynchronizedBatchNormalization()"
    nets = NETWORK.replace("Flatten(), dense", f"Flatten(), {norm}, dense")
    nets = nets.replace("tensorflow as tf", "tensorflow as tf\nimport tfx_estimator.model_fn.layers")
    stderr = deep(4, trainer=f'model: "nets:network", path: {path}, {replicas}', nets=nets).err
    assert "of the network sums over all replicas" in stderr


@pytest.mark.long
@pytest.mark.parametrize("model", ['"mine:model_fn"', '"nets:network", path: keras'])
def test_an_early_stopping_metric_that_the_model_lacks_is_reported_with_those_it_has(deep, model):
    stderr = deep(4, trainer=f"model: {model}, early_stopping: auc", nets=NETWORK).err
    assert "trainer.early_stopping.metric: the evaluation reports no `auc`" in stderr
    assert "expected: one of accuracy, average_loss, loss" in stderr


@pytest.mark.long
@pytest.mark.parametrize("path", ["keras", "estimator"])
def test_a_layer_that_does_not_take_its_input_is_shown_with_the_line_that_made_it(deep, path):
    nets = NETWORK.replace("Flatten(), dense", "Flatten(), tf.keras.layers.Reshape([100]), dense")
    stderr = deep(4, trainer=f'model: "nets:network", path: {path}', nets=nets).err
    assert "784" in stderr
    assert 'nets.py", line 7, in network\n        return tf.keras.Sequential([tf.keras.layers.Flatten(), tf' in stderr


PREPROCESSING = """
import tensorflow as tf


def scaled(inputs):
    label = inputs["label"]
    raw = tf.io.decode_raw(tf.reshape(inputs["image"], [-1]), tf.uint8)
    pixels = tf.reshape(tf.cast(raw, tf.float32), [-1, 28, 28, 1])
    LINE
"""


@pytest.fixture
def preprocess(deep):
    """Validates a preprocessing_fn that ends in `line`; returns stderr."""

    def run(code: int, line: str, *options: str) -> str:
        more = 'transform: {preprocessing_fn: "own_preprocessing:scaled"}\n'
        return deep(code, *options, more=more, own_preprocessing=PREPROCESSING.replace("LINE", line)).err

    return run


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("return {'image': pixels, 'label': label // 2}", "the preprocessing_fn returns the label 0 for 1"),
        pytest.param("return {'image': pixels, 'label': tf.reshape(label, [-1, 1])}", "", marks=pytest.mark.long),
        pytest.param("raise ValueError('my own')", "failed: ValueError: my own", marks=pytest.mark.long),
        pytest.param("return {'image': pixels}", "returns image, but no label", marks=pytest.mark.long),
        pytest.param("return None", "own_preprocessing:scaled on made-up images", marks=pytest.mark.long),
    ],
)
def test_a_preprocessing_fn_is_checked_too(preprocess, line, message):
    assert message in preprocess(4 if message else 0, line)


@pytest.mark.long
@pytest.mark.parametrize(
    ("further", "message"),
    [
        # Each of its 784 values would be a slice.
        ("tf.reshape(pixels, [-1, 784])", "the feature `further`, which has 784 values per example, of shape [784]"),
        ("tf.reduce_mean(pixels, [1, 2, 3])", "the feature `further` is float32"),
        ("tf.strings.split(tf.where(label > 4, 'high', 'low small'))", ""),
    ],
)
def test_a_feature_used_for_slices_is_checked(preprocess, further, message):
    line = f"return {{'image': pixels, 'label': label, 'further': {further}}}"
    assert message in preprocess(4 if message else 0, line, "evaluator.slices=[further, [label, further]]")


@pytest.mark.long
def test_an_output_that_is_not_served_is_reported(deep):
    stderr = deep(4, "evaluator.prediction_key=probabilities").err
    assert "the served outputs are classes, scores: there is no `probabilities`" in stderr


OF_IMAGES = """
import tensorflow as tf


def model_fn(features, labels, mode):
    logits = tf.compat.v1.layers.dense(tf.reshape(features["image"], [-1, 784]), 10)
    served = {"serving_default": tf.estimator.export.PredictOutput({"scores": tf.nn.softmax(logits)})}
    if mode == "infer":
        return tf.estimator.EstimatorSpec(mode, predictions={"scores": logits}, export_outputs=served)
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, tf.compat.v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


def input_fn():
    return tf.data.Dataset.from_tensors(({"image": tf.zeros([2, 28, 28, 1])}, [0, 1])).repeat(9)


def receiver():
    images = tf.compat.v1.placeholder(tf.float32, [None, 28, 28, 1])
    return tf.estimator.export.ServingInputReceiver({"image": images}, {"images": images})


def trainer_fn(fn_args, schema):
    return {
        "estimator": tf.estimator.Estimator(model_fn, fn_args.serving_model_dir),
        "train_spec": tf.estimator.TrainSpec(input_fn, max_steps=fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(input_fn, exporters=tf.estimator.FinalExporter("own", receiver)),
    }
"""


@pytest.mark.long
def test_a_served_signature_that_the_evaluator_cannot_call_is_reported(deep):
    stderr = deep(4, trainer="module_file: images.py", images=OF_IMAGES).err
    assert "could not call the served signature `serving_default`, which takes images: float32 (None, 28," in stderr


BINARY = """
import tensorflow as tf


def model_fn(features, labels, mode):
    logit = tf.compat.v1.layers.dense(tf.compat.v1.layers.flatten(features["image"]), 1)
    step = tf.compat.v1.train.get_global_step()
    minimize = lambda loss: tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    spec = tf.estimator.BinaryClassHead().create_estimator_spec(features, mode, logit, labels, train_op_fn=minimize)
    # From the head's other outputs, the scores of both classes would be taken.
    one = tf.estimator.export.PredictOutput({"logistic": tf.sigmoid(logit)})
    return spec._replace(export_outputs={"serving_default": one}) if mode == "infer" else spec
"""


@pytest.mark.long
@pytest.mark.parametrize(("binarize", "code"), [("[dog]", 0), ("[cat]", 4), ("all", 4)])
def test_a_metric_of_a_class_without_a_score_is_reported(deep, tmp_path, binarize, code):
    for shade, name in enumerate(("cat", "dog")):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(10):
            Image.new("L", (8, 8), 100 * shade + number).save(tmp_path / "pictures" / name / f"{number}.png")
    metric = f"evaluator.metrics=[{{name: Recall, binarize: {binarize}, threshold: {{lower: 0.5}}}}]"
    data = (f"data.dataset={tmp_path / 'pictures'}", metric)
    output = deep(code, *data, trainer='model: "binary:model_fn"', binary=BINARY)
    if code:
        assert "Recall binarize the class 0, but the model has a single score for its two classes, `log" in output.err
    else:
        assert "evaluated is `logistic` (" in output.out


@pytest.mark.long
def test_tensors_that_several_replicas_cannot_share_are_reported_before_ingestion(deep):
    tutorial = (EXAMPLES / "multi-worker-tutorial" / "tutorial.py").read_text()
    batches = "return examples.batch(BATCH_SIZE)"
    assert batches in tutorial
    tensors = "return tuple(map(tf.identity, tf.compat.v1.data.make_one_shot_iterator(examples.batch(4)).get_next()))"
    files = {"tensors": tutorial.replace(batches, tensors)}
    stderr = deep(4, "trainer.distribution.train=mirrored:2", trainer="module_file: tensors.py", **files).err
    assert "TrainSpec.input_fn returns (" in stderr
    assert "tf.data.Dataset.from_tensor_slices((x, y))" in stderr


@pytest.mark.long
@pytest.mark.parametrize(("arguments", "code"), [("fn_args", 0), ("fn_args, schema", 4)])
def test_a_run_fn_is_imported_and_not_called(deep, arguments, code):
    output = deep(code, trainer="module_file: run.py", run=f"def run_fn({arguments}): 1 / 0\n")
    assert ("the import of run.py; its run_fn was not called" in output.out) is (code == 0)
    assert ("run_fn cannot be called with fn_args alone" in output.err) is (code == 4)
