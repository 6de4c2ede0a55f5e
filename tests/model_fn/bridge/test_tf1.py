"""Code of TensorFlow 1 runs unedited: what it imports, what tf.contrib has, and what is said of the rest."""

from __future__ import annotations

import importlib
import json
import os
import types

import numpy as np
import pytest

from tests.root import ROOT, run_python
from tfx_estimator.model_fn.bridge.contrib import Contrib
from tfx_estimator.model_fn.bridge.contrib_parts import HParams, LazyAdamOptimizer
from tfx_estimator.model_fn.bridge.tf1 import lacks

# A program as they were written for TensorFlow 1; prints what it reached.
PROGRAM = """
from __future__ import print_function
import json, tempfile
import numpy as np
import tensorflow as tf
import tensorflow.contrib.data as contrib_data
import tensorflow.python.platform.gfile as gfile
from tensorflow.contrib import lookup, rnn
from tensorflow.contrib.tpu.python.tpu import tpu_estimator
from tensorflow.contrib.training import HParams
from tensorflow.keras.layers import Dense
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_ops
import keras_helpers
import tensorflow_library

flags = tf.app.flags
flags.DEFINE_string("params", "", "")
points = np.random.RandomState(0).rand(256, 4).astype("float32")
labels = (points.sum(1) > 2).astype("int32")


def model_fn(features, labels, mode, params):
    names = lookup.index_table_from_tensor(mapping=["low", "high"])
    start = tf.glorot_uniform_initializer(1)
    hidden = tf.layers.dense(features["x"], params.units, tf.nn.relu, kernel_initializer=start)
    logits = tf.layers.dense(hidden, 2, kernel_initializer=tf.zeros_initializer())
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    optimizer = tf.contrib.estimator.clip_gradients_by_norm(tf.train.AdamOptimizer(params.rate), 1.0)
    train_op = optimizer.minimize(loss, tf.train.get_or_create_global_step())
    ids = names.lookup(tf.where(tf.equal(labels, 1), tf.fill([64], "high"), tf.fill([64], "low")))
    accuracy = tf.metrics.accuracy(ids, tf.argmax(logits, -1))
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops={"accuracy": accuracy})


def input_fn():
    dataset = tf.data.Dataset.from_tensor_slices(({"x": points}, labels)).repeat(50)
    return dataset.apply(contrib_data.batch_and_drop_remainder(64)).make_one_shot_iterator().get_next()


def main(_):
    hparams = HParams(units=1, rate=1.0).parse(flags.FLAGS.params)
    estimator = tf.estimator.Estimator(model_fn, tempfile.mkdtemp(), params=hparams)
    estimator.train(input_fn)
    metrics = estimator.evaluate(input_fn)
    print(json.dumps({
        "steps": int(metrics["global_step"]),
        "accuracy": float(metrics["accuracy"]),
        "rnn": rnn.BasicLSTMCell is tf.nn.rnn_cell.BasicLSTMCell,
        "tpu": tpu_estimator.TPUEstimator is tf.contrib.tpu.TPUEstimator is tf.estimator.tpu.TPUEstimator,
        "keras": Dense is tf.keras.layers.Dense,
        "moved": ops.Tensor is tf.Tensor and control_flow_ops.cond is tf.cond,
        "eager": tf.executing_eagerly(),
        "library": tensorflow_library.version,
        "helpers": keras_helpers.version,
        "gfile": hasattr(gfile, "GFile"),
        "missing": hasattr(tf.contrib, "crf"),
    }))


if __name__ == "__main__":
    tf.app.run()
"""


@pytest.mark.timeout(220)
def test_a_program_of_tensorflow_1_runs_unedited(tmp_path):
    (tmp_path / "task.py").write_text(PROGRAM)
    installed = tmp_path / "site-packages"
    installed.mkdir()
    for module in (tmp_path / "keras_helpers.py", installed / "tensorflow_library.py"):
        module.write_text("import tensorflow as tf\nversion = 1 if hasattr(tf, 'app') else 2")
    words = ("-m", "tfx_estimator.estimator", "--tf1", "task.py", "--params", "units=16,rate=0.05")
    done = run_python(*words, cwd=tmp_path, PYTHONPATH=os.pathsep.join(map(str, (ROOT / "src", installed))), code=0)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("accuracy") > 0.9
    yes = dict.fromkeys(("rnn", "tpu", "keras", "moved", "gfile"), True)
    assert found == {"steps": 200, "library": 2, "helpers": 1, "eager": False, "missing": False, **yes}


@pytest.mark.timeout(220)
def test_layers_of_slim_are_trained(tmp_path):
    code = """
import tensorflow as tf
from tensorflow.contrib import slim
from tensorflow.contrib.layers.python.layers import layers, batch_norm
from tensorflow.contrib.slim.nets import resnet_v2

with slim.arg_scope([tf.contrib.layers.fully_connected], normalizer_fn=batch_norm):
    hidden = layers.fully_connected(tf.ones([4, 3]), 2)
print([each.op.name for each in tf.global_variables()], len(tf.get_collection(tf.GraphKeys.UPDATE_OPS)))
print(tf.contrib.framework.get_or_create_global_step().op.name, tf.contrib.layers.xavier_initializer()([2, 2]).shape)
"""
    (tmp_path / "task.py").write_text(code)
    done = run_python("-m", "tfx_estimator.estimator", "--tf1", "task.py", cwd=tmp_path)
    assert done.stdout.splitlines() == [
        "['fully_connected/weights', 'fully_connected/BatchNorm/beta', 'fully_connected/BatchNorm/moving_mean', "
        "'fully_connected/BatchNorm/moving_variance'] 2",
        "global_step (2, 2)",
    ], done.stderr[-3000:]


@pytest.mark.timeout(220)
@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), "import tensorflow as tf\ntf.logging.info('x')", "line 2: TensorFlow 2 has no tensorflow.logging"),
        (
            ("--tf1",),
            "import tensorflow as tf\n\ntf.contrib.layers.real_valued_column('x')",
            "tf.feature_column.numeric",
        ),
    ],
    ids=["without", "missing"],
)
def test_what_is_missing_ends_with_what_to_do(tmp_path, options, code, message):
    (tmp_path / "task.py").write_text(code)
    done = run_python("-m", "tfx_estimator.estimator", *options, "task.py", cwd=tmp_path)
    assert done.returncode in (4, 6)
    assert "Traceback" not in done.stderr
    assert message in done.stderr
    assert ("run with --tf1" in done.stderr) is not bool(options)


@pytest.fixture
def tf():
    import tensorflow

    from tfx_estimator import bring_back_estimator

    bring_back_estimator()
    return tensorflow


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (lambda tf: tf.contrib, "tensorflow.contrib"),
        (lambda tf: importlib.import_module("tensorflow.contrib.slim"), "tensorflow.contrib"),
        (lambda tf: tf.train.AdamOptimizer, "tensorflow.train.AdamOptimizer"),
        (lambda tf: tf.data.Dataset.range(2).make_one_shot_iterator, "tensorflow.data.Dataset.make_one_shot_iterator"),
        (lambda tf: tf.no_such_name, None),
        (lambda tf: tf.constant(1).logging, None),
        (lambda tf: importlib.import_module("no_such_module"), None),
    ],
    ids=["contrib", "import", "optimizer", "iterator", "no name", "tensor", "no module"],
)
def test_a_name_of_tensorflow_1_is_recognised(tf, use, name):
    with pytest.raises((AttributeError, ImportError)) as caught:
        use(tf)
    error = lacks(caught.value, "run with --tf1")
    assert (error and name) == name
    assert not error or f"no {name}," in error.what


def test_every_path_to_an_estimator_has_the_names_of_tensorflow_2_15(tf):
    recorded = json.loads((ROOT / "tests/model_fn/bridge/estimator_names.json").read_text())
    for owner in (tf, tf.compat.v1, tf.compat.v2):
        assert [sorted(_names(each.estimator)) for each in (owner.compat.v1, owner.compat.v2)] == recorded
    assert sorted(_names(tf.estimator)) == recorded[1]


def _names(module, prefix=""):
    for name in dir(module):
        value = getattr(module, name)
        if isinstance(value, types.ModuleType) and "estimator" in value.__name__:
            yield from _names(value, f"{prefix}{name}.")
        elif not name.startswith("_"):
            yield f"{prefix}{name}"


def test_lazy_adam_moves_only_rows_with_a_gradient(tf):
    for use_resource in (True, False):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            table = tf.compat.v1.get_variable("table", initializer=tf.ones([3, 2]), use_resource=use_resource)
            optimizer = LazyAdamOptimizer(0.1)
            ids = tf.compat.v1.placeholder(tf.int32, [None])
            step = optimizer.minimize(tf.reduce_sum(tf.gather(table, ids)))
            session.run(tf.compat.v1.global_variables_initializer())
            for each in ([0], [1], [0]):
                session.run(step, {ids: each})
            moment, value = session.run((optimizer.get_slot(table, "m"), table))
        np.testing.assert_allclose(moment[:, 0], [0.19, 0.1, 0.0], rtol=1e-6)
        # A gradient of 1 in each step: Adam's step is the rate, up to its bias correction.
        rates = [0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) for t in (1, 2, 3)]
        rows = [(0.1, 0.001), (0.1, 0.001), (0.19, 0.001999)]
        moved = [rate * m / (np.sqrt(v) + 1e-8) for rate, (m, v) in zip(rates, rows)]
        np.testing.assert_allclose(value[:, 0], [1 - moved[0] - moved[2], 1 - moved[1], 1.0], rtol=1e-5)


def test_hparams_keep_their_types():
    params = HParams(rate=0.5, units=[8, 4], name="a", train=False)
    assert params.parse("rate=1,units=[2, 3],name=b,train=True") is params
    assert params.values() == {"rate": 1.0, "units": [2, 3], "name": "b", "train": True}
    params.parse_json(params.to_json()).add_hparam("more", None)
    assert (params.get("rate"), params.get("none", 3), "more" in params, params.more) == (1.0, 3, True, None)
    for wrong in ("rate", "other=1", "units=2", "rate=x"):
        with pytest.raises(ValueError, match=r"rate|other|units|float"):
            params.parse(wrong)
    with pytest.raises(ValueError, match=r"2\.7"):
        params.override_from_dict({"units": [2.7]})


def test_mnist_has_the_parts_and_numbers_of_the_tutorial(tf, monkeypatch):
    images = np.arange(6000, dtype=np.uint16).astype(np.uint8)[:, None, None] * np.ones([28, 28], np.uint8)
    labels = (np.arange(6000) % 10).astype(np.uint8)
    data = (images, labels), (images[:7], labels[:7])
    monkeypatch.setattr(tf.keras.datasets.mnist, "load_data", lambda: data)
    mnist = Contrib().learn.datasets.load_dataset("mnist")
    assert mnist.train.images.shape == (1000, 784)
    assert mnist.train.images.dtype == np.float32
    assert mnist.train.images[1].tolist() == pytest.approx([5001 % 256 / 255] * 784)
    assert mnist.train.labels[:3].tolist() == [0, 1, 2]
    assert (len(mnist.validation.images), len(mnist.test.labels)) == (5000, 7)
