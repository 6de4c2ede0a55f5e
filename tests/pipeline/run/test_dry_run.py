"""The user's code, tried on made-up examples: real processes."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from pathlib import Path

import pytest
from PIL import Image

from tests.e2e.conftest import Workdir
from tests.examples import EXAMPLES
from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.folders import PipelineFolders

pytestmark = [pytest.mark.timeout(400)]

DECLARATION = """
name: tried
data: {dataset: digits, splits: {train: "train[:80%]", eval: "train[80%:]"}, shards: 2}
trainer: {model: "mine:model_fn", train_epochs: 1, global_batch_size: 300}
"""
MODEL_FN = """
import os, sys, time
import tensorflow as tf


def model_fn(features, labels, mode, params):
    assert params["label_names"][3] == "3" and params["image_shape"] == (28, 28, 1)
    {line}
    logits = tf.compat.v1.layers.dense(tf.compat.v1.layers.flatten(features["image"]), params["num_classes"])
    head = tf.estimator.MultiClassHead(params["num_classes"])
    step = tf.compat.v1.train.get_global_step()
    minimize = lambda loss: tf.compat.v1.train.AdamOptimizer(0.01).minimize(loss, step)
    return head.create_estimator_spec(features, mode, logits, labels, train_op_fn=minimize)
"""


@pytest.fixture
def declare(tmp_path: Path, monkeypatch):
    """Writes a declaration and its module; `line` is in the middle of the model_fn. Returns the declaration's file."""
    monkeypatch.chdir(tmp_path)
    # Of the processes too: nothing may stay in it.
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)

    def write(line: str = "pass", text: str = DECLARATION, **files: str) -> str:
        (tmp_path / "mine.py").write_text(MODEL_FN.format(line=line))
        (tmp_path / "tried.yaml").write_text(text)
        for name, content in files.items():
            (tmp_path / f"{name}.py").write_text(content)
        return str(tmp_path / "tried.yaml")

    yield write
    assert not os.listdir(tmp_path / "temporary")


def test_a_whole_model_fn_passes_and_is_told_what_was_tried(declare, capsys):
    assert main(["validate", "--deep", declare()]) == 0
    said = capsys.readouterr().out
    assert "    tried: standardize on made-up images of 28x28x1; " in said
    assert "a step, an evaluation and the export of mine:model_fn, with batches of 300; " in said
    assert "its served outputs: classes, scores; evaluated is `scores` (" in said


NETWORK = """
import tensorflow as tf


def network(num_classes):
    dense = tf.keras.layers.Dense(num_classes, name="logits")
    return tf.keras.Sequential([tf.keras.layers.Flatten(), dense])
"""


def test_a_network_is_tried_on_the_declared_path(declare, capsys):
    text = DECLARATION.replace('"mine:model_fn"', '"nets:network", path: keras')
    assert main(["validate", "--deep", declare(text=text, nets=NETWORK)]) == 0
    said = capsys.readouterr().out
    assert "a step, an evaluation and the export of nets:network, with batches of 300; " in said
    assert "evaluated is `probabilities` (" in said


@pytest.mark.long
@pytest.mark.parametrize(
    "divided",
    [
        "model_parallel: {devices: [cpu:0, cpu:1], layers: {logits: 1}}",
        "pipeline_parallel: {stages: 2, microbatches: 2}",
    ],
)
def test_a_network_is_tried_on_the_devices_that_its_parts_are_given_to(declare, capsys, divided):
    text = DECLARATION.replace('"mine:model_fn"', f'"nets:network", path: keras, {divided}')
    assert main(["validate", "--deep", declare(text=text, nets=NETWORK)]) == 0
    assert "evaluated is `probabilities` (" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize("path", ["keras", "estimator"])
def test_a_layer_that_xla_cannot_compile_for_the_declared_replicas_is_told(declare, capsys, path):
    """The trial itself has one replica."""
    replicas = "xla: true, distribution: {train: 'mirrored:2'}"
    text = DECLARATION.replace('"mine:model_fn"', f'"nets:network", path: {path}, {replicas}')
    norm = "tfx_estimator.model_fn.layers.SynchronizedBatchNormalization()"
    nets = NETWORK.replace("Flatten(), dense", f"Flatten(), {norm}, dense")
    nets = nets.replace("tensorflow as tf", "tensorflow as tf\nimport tfx_estimator.model_fn.layers")
    assert main(["validate", "--deep", declare(text=text, nets=nets)]) == 4
    assert "of the network adds up over all replicas" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("model", ['"mine:model_fn"', '"nets:network", path: keras'])
def test_a_metric_of_early_stopping_that_the_model_does_not_report_is_told_with_those_that_it_does(
    declare, capsys, model
):
    text = DECLARATION.replace('"mine:model_fn"', f"{model}, early_stopping: auc")
    assert main(["validate", "--deep", declare(text=text, nets=NETWORK)]) == 4
    said = capsys.readouterr().err
    assert "trainer.early_stopping.metric: the evaluation reports no `auc`" in said
    assert "expected: one of accuracy, average_loss, loss" in said


def test_a_mistake_is_told_with_its_line_before_anything_is_ingested(declare, tmp_path):
    line = "assert mode != 'eval', 'only in an evaluation'"
    workdir = Workdir(tmp_path / "runs")
    said = workdir.run(declare(line), code=4, dry_run=True)
    assert "failed: AssertionError: only in an evaluation" in said
    assert f'File "{tmp_path}/mine.py", line 8, in model_fn\n' in said
    assert f"    {line}\n" in said
    assert workdir.states("tried") == {}
    assert not (workdir.path / "tried" / "artifacts").exists()
    (log,) = workdir.path.glob("tried/logs/*/dry_run/*.log")
    assert f"mend the code above, or see {log}" in said


@pytest.mark.parametrize(
    ("exclude", "told"),
    [
        pytest.param("[]", "trainer.warm_start: none of the weights in ", marks=pytest.mark.long),
        pytest.param("[logit/*]", "trainer.warm_start.exclude: no variable of the model fits", marks=pytest.mark.long),
    ],
)
def test_weights_that_a_network_of_ours_cannot_begin_with_are_told_before_anything_is_ingested(
    declare, tmp_path, exclude, told
):
    """Those of another network."""
    import tensorflow as tf

    checkpoint = tf.train.Checkpoint(model=tf.Variable([1.0], name="other")).write(str(tmp_path / "weights"))
    warm = f"mnist_cnn, warm_start: {{checkpoint: {checkpoint}, exclude: {exclude}}}"
    file = declare(text=DECLARATION.replace('"mine:model_fn"', warm))
    workdir = Workdir(tmp_path / "runs")
    assert told in workdir.run(file, code=4, dry_run=True)
    assert not (workdir.path / "tried" / "artifacts").exists()


@pytest.mark.parametrize(
    ("verb", "begins", "told", "offers"),
    [
        (
            ["validate", "--deep"],
            "trying the code of ",
            "the dry run (its start) gave no sign for 0 s",
            True,
        ),
        (["estimate"], "tfx-estimator: ", "the estimate (its start) gave no sign", False),
    ],
    ids=["dry run", "estimate"],
)
def test_it_has_a_deadline(fresh_tasks, declare, capsys, monkeypatch, verb, begins, told, offers):
    monkeypatch.setattr("tfx_estimator.pipeline.run.dry_run._QUIET_SECONDS", 0.3)
    assert main([*verb, declare(), "--set", "trainer.stall_timeout=0.2"]) == 4
    said = capsys.readouterr()
    assert said.err.startswith(begins)
    assert told in said.err
    assert ("--no-dry-run" in said.err) is offers
    assert "ok" not in said.out


@pytest.mark.long
def test_an_endless_loop_is_named_long_before_the_deadline(declare, capsys, tmp_path):
    begun = time.monotonic()
    # A short limit of a training's is none of the trial, which starts TensorFlow.
    assert main(["validate", "--deep", declare("while True: pass"), "--set", "trainer.stall_timeout=10"]) == 4
    said = capsys.readouterr().err
    assert "; your code was at work:\n" in said
    assert f'  File "{tmp_path}/mine.py", line 8, in model_fn\n' in said
    assert 55 < time.monotonic() - begun < 290


@pytest.mark.long
def test_a_thread_that_is_left_at_work_is_not_waited_for(declare):
    from tfx_estimator.pipeline.run import dry_run

    left = "import threading; threading.Thread(target=__import__('time').sleep, args=(600,)).start()"
    with dry_run.begin(load(declare(left))) as trial:
        tried = trial.wait()
        # Its process is there still.
        assert trial._process.code is None
    assert len(tried.parts) == 3
    assert trial._process.code is not None


BREAKS = {
    "os._exit(0)": "ended, with exit code 0; your code was at work:",
    "os.abort()": "was killed by SIGABRT; your code was at work:",
    "import ctypes; ctypes.string_at(0)": "was killed by SIGSEGV; your code was at work:",
    "sys.exit('enough')": "failed: SystemExit: enough",
    "params['absent']": "failed: KeyError: 'absent'",
    "features['image'] = tf.reshape(features['image'], [128, 784])": "failed: ValueError",
    # Not before the graph runs.
    "features['image'] = tf.gather(features['image'], labels + 900)": "failed: InvalidArgumentError: ",
}


@pytest.mark.long
@pytest.mark.parametrize("line", BREAKS)
def test_code_that_breaks_or_ends_the_process_is_told_with_its_line(declare, capsys, tmp_path, line):
    assert main(["validate", "--deep", declare(line)]) == 4
    said = capsys.readouterr().err
    assert BREAKS[line] in said
    assert f'  File "{tmp_path}/mine.py", line 8, in model_fn\n' in said
    # Of the stack, the user's lines alone.
    assert "site-packages" not in said


PREPROCESSED = DECLARATION + 'transform: {preprocessing_fn: "own_preprocessing:scaled"}\n'
PREPROCESSING = """
import tensorflow as tf


def scaled(inputs):
    label = inputs["label"]
    raw = tf.io.decode_raw(tf.reshape(inputs["image"], [-1]), tf.uint8)
    pixels = tf.reshape(tf.cast(raw, tf.float32), [-1, 28, 28, 1])
    LINE
"""


def preprocess(declare, capsys, line: str, *options: str) -> tuple[int, str]:
    """Tries a preprocessing_fn that ends in a line."""
    file = declare(text=PREPROCESSED, own_preprocessing=PREPROCESSING.replace("LINE", line))
    code = main(["validate", "--deep", file, *options])
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("return {'image': pixels, 'label': label // 2}", "the preprocessing_fn returns the label 0 for 1"),
        pytest.param("return {'image': pixels, 'label': tf.reshape(label, [-1, 1])}", "", marks=pytest.mark.long),
        pytest.param("raise ValueError('my own')", "failed: ValueError: my own", marks=pytest.mark.long),
        pytest.param("return {'image': pixels}", "returns image, but no label", marks=pytest.mark.long),
        pytest.param("return None", "own_preprocessing:scaled on made-up images", marks=pytest.mark.long),
    ],
)
def test_a_preprocessing_fn_is_tried_too(declare, capsys, line, told):
    code, said = preprocess(declare, capsys, line)
    assert (code, told in said) == (4 if told else 0, True)


@pytest.mark.long
@pytest.mark.parametrize(
    ("further", "told"),
    [
        # Each of its 784 numbers would be a slice.
        ("tf.reshape(pixels, [-1, 784])", "the feature `further`, which has 784 values an example, of shape [784]"),
        ("tf.reduce_mean(pixels, [1, 2, 3])", "the feature `further` is float32"),
        ("tf.strings.split(tf.where(label > 4, 'high', 'low small'))", ""),
    ],
)
def test_a_feature_that_slices_are_made_by_is_looked_at(declare, capsys, further, told):
    line = f"return {{'image': pixels, 'label': label, 'further': {further}}}"
    code, said = preprocess(declare, capsys, line, "--set", "evaluator.slices=[further, [label, further]]")
    assert (code, told in said) == (4 if told else 0, True)


@pytest.mark.long
def test_an_output_that_is_not_served_is_told(declare, capsys):
    assert main(["validate", "--deep", declare(), "--set", "evaluator.prediction_key=probabilities"]) == 4
    assert "the served outputs are classes, scores: there is no `probabilities`" in capsys.readouterr().err


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


def test_a_served_signature_that_the_evaluator_cannot_call_is_told(declare, capsys):
    text = DECLARATION.replace('model: "mine:model_fn"', "module_file: images.py")
    assert main(["validate", "--deep", declare(text=text, images=OF_IMAGES)]) == 4
    said = capsys.readouterr().err
    assert "could not call the served signature `serving_default`, which takes images: float32 (None, 28," in said


BINARY = """
import tensorflow as tf


def model_fn(features, labels, mode):
    logit = tf.compat.v1.layers.dense(tf.compat.v1.layers.flatten(features["image"]), 1)
    step = tf.compat.v1.train.get_global_step()
    minimize = lambda loss: tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    spec = tf.estimator.BinaryClassHead().create_estimator_spec(features, mode, logit, labels, train_op_fn=minimize)
    # Of what it would serve beside it, scores of both classes would be taken.
    one = tf.estimator.export.PredictOutput({"logistic": tf.sigmoid(logit)})
    return spec._replace(export_outputs={"serving_default": one}) if mode == "infer" else spec
"""


@pytest.mark.long
@pytest.mark.parametrize(("binarize", "code"), [("[dog]", 0), ("[cat]", 4), ("all", 4)])
def test_a_metric_of_the_class_that_there_is_no_score_of_is_told(declare, capsys, tmp_path, binarize, code):
    for shade, name in enumerate(("cat", "dog")):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(10):
            Image.new("L", (8, 8), 100 * shade + number).save(tmp_path / "pictures" / name / f"{number}.png")
    text = DECLARATION.replace("dataset: digits", f"dataset: {tmp_path / 'pictures'}").replace("mine:", "binary:")
    metric = f"evaluator.metrics=[{{name: Recall, binarize: {binarize}, threshold: {{lower: 0.5}}}}]"
    assert main(["validate", "--deep", declare(text=text, binary=BINARY), "--set", metric]) == code
    said = capsys.readouterr()
    if code:
        assert "Recall binarize the class 0, and the model has one score for its two classes, `logistic`" in said.err
    else:
        assert "evaluated is `logistic` (" in said.out


def test_tensors_that_several_replicas_cannot_share_are_told_before_anything_is_ingested(declare, capsys):
    tutorial = (EXAMPLES / "multi-worker-tutorial" / "tutorial.py").read_text()
    batches = "return examples.batch(BATCH_SIZE)"
    assert batches in tutorial
    tensors = "return tf.compat.v1.data.make_one_shot_iterator(examples.batch(BATCH_SIZE)).get_next()"
    text = DECLARATION.replace('model: "mine:model_fn"', "module_file: tensors.py")
    file = declare(text=text, tensors=tutorial.replace(batches, tensors))
    assert main(["validate", "--deep", file, "--set", "trainer.distribution.train=mirrored:2"]) == 4
    said = capsys.readouterr().err
    assert "TrainSpec.input_fn returns (" in said
    assert "tf.data.Dataset.from_tensor_slices((x, y))" in said


@pytest.mark.long
@pytest.mark.parametrize(("arguments", "code"), [("fn_args", 0), ("fn_args, schema", 4)])
def test_a_run_fn_is_imported_and_not_called(declare, capsys, arguments, code):
    text = DECLARATION.replace('model: "mine:model_fn"', "module_file: run.py")
    assert main(["validate", "--deep", declare(text=text, run=f"def run_fn({arguments}): 1 / 0\n")]) == code
    said = capsys.readouterr()
    assert ("the import of run.py; its run_fn was not called" in said.out) is (code == 0)
    assert ("run_fn cannot be called with fn_args alone" in said.err) is (code == 4)


@pytest.mark.unit
def test_what_passed_is_not_tried_again_until_it_changes(declare, tmp_path):
    from tfx_estimator.pipeline.run.dry_run import Memory

    def memory(*overrides: str) -> Memory:
        return Memory(load(str(tmp_path / "tried.yaml"), overrides), PipelineFolders(str(tmp_path / "runs"), "tried"))

    declare(text=PREPROCESSED, own_preprocessing="def scaled(inputs): pass\n")
    (tmp_path / "runs" / "tried").mkdir(parents=True)
    assert not memory().knows()
    memory().remember()
    assert memory().knows()
    # What trains longer is the same code; under several replicas XLA may not compile it, nor they share its batches.
    assert memory("trainer.train_epochs=9", "trainer.seed=3").knows()
    assert not memory("trainer.distribution.train={strategy: mirrored, devices: {cpu: 2}}").knows()
    assert not memory("trainer.params.units=3").knows()
    assert not memory("trainer.keep_best=loss").knows()
    assert not memory("data.image_size=[8, 8]").knows()
    declare("print()", text=PREPROCESSED, own_preprocessing="def scaled(inputs): pass\n")
    assert not memory().knows()
    declare(text=PREPROCESSED, own_preprocessing="def scaled(inputs): return inputs\n")
    assert not memory().knows()
    # Nothing of these is the user's.
    built_in = ("trainer.model=mnist_cnn", "transform.preprocessing_fn=null")
    assert memory(*built_in).knows()
    for part in ("index", "data-00000-of-00001"):
        (tmp_path / f"weights.{part}").touch()
    assert not memory(*built_in, "trainer.warm_start.checkpoint=weights").knows()
    assert not memory(*built_in, "trainer.params.num_classes=3").knows()


@pytest.mark.unit
def test_a_dry_run_ends_with_its_context(fresh_tasks, declare):
    import psutil

    from tfx_estimator.pipeline.run import dry_run

    def running() -> bool:
        return any("dry_run-0" in " ".join(child.cmdline()) for child in psutil.Process().children())

    with dry_run.begin(load(declare())):
        assert running()
        # In the folder that the next run sweeps, should this one be killed.
        assert os.listdir(os.environ["TMPDIR"]) == [f"tfx-estimator-{os.getuid()}"]
    assert not running()


@pytest.mark.long
@pytest.mark.parametrize("times", [1, 2])
def test_a_crash_of_native_code_is_tried_again_and_not_called_the_users(fresh_tasks, declare, tmp_path, times):
    import psutil

    from tfx_estimator.pipeline.run import dry_run

    def line(process: psutil.Process) -> str:
        try:
            return " ".join(process.cmdline())
        except psutil.Error:
            return ""

    def crash() -> None:
        seen: set[int] = set()
        while len(seen) < times:
            found = [each.pid for each in psutil.Process().children(recursive=True) if "dry_run-0" in line(each)]
            # The keeper's child: it is there at once, and imports TensorFlow for seconds.
            if len(found) > 1 and found[-1] not in seen:
                seen.add(found[-1])
                os.kill(found[-1], signal.SIGSEGV)
            time.sleep(0.05)

    with dry_run.begin(load(declare()), str(tmp_path / "logs")) as trial:
        crasher = threading.Thread(target=crash, daemon=True)
        crasher.start()
        if times == 1:
            assert trial.wait().parts
        else:
            said = "was killed by SIGSEGV, and no line of your code was at work"
            with pytest.raises(dry_run.InconclusiveError, match=said) as told:
                trial.wait()
            assert told.value.todo.endswith(f"or see {tmp_path / 'logs' / 'dry_run-0.attempt-2.log'}")
        crasher.join(10)
