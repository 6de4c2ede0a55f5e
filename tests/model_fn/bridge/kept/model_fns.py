"""model_fns of the kinds that public code has, small, each with its input_fn; for both stacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

_V1 = tf.compat.v1
_TRAIN, _EVAL, _PREDICT = "train", "eval", "infer"


def dense_input(count: int = 64, batch: int = 8, repeat: int = 9) -> Callable[[], Any]:
    """Batches of numbers, and classes."""
    return lambda: tf.data.Dataset.from_tensor_slices(_arrays(count)).batch(batch).repeat(repeat)


def _arrays(count: int) -> Any:
    random = np.random.RandomState(1)
    return {"x": random.rand(count, 5).astype("float32")}, random.randint(0, 3, count).astype("int32")


def receiver_fn() -> Any:
    """Serves serialized examples of `dense_input`."""
    spec = {"x": tf.io.FixedLenFeature([5], tf.float32)}
    return tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)()


def text_input() -> Any:
    """Sparse and ragged words, and no labels but a feature."""
    features, labels = _arrays(48)
    words = tf.ragged.constant([["a", "bc", "d"][: 1 + index % 3] for index in range(48)])
    features |= {"my words": words, "tags": words.to_sparse(), "label": labels}
    return tf.data.Dataset.from_tensor_slices(features).batch(8).repeat(9)


def _spec(logits: Any, labels: Any, mode: str, train: Callable[[Any], Any], **more: Any) -> Any:
    if mode == _PREDICT:
        return tf.estimator.EstimatorSpec(mode, {"logits": logits, "class": tf.argmax(logits, 1)}, **more)
    loss = _V1.losses.sparse_softmax_cross_entropy(labels, logits) + sum(_V1.losses.get_regularization_losses(), 0.0)
    metrics = {"accuracy": _V1.metrics.accuracy(labels, tf.argmax(logits, 1))}
    train_op = train(loss) if mode == _TRAIN else None
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics, **more)


def _step() -> Any:
    return _V1.train.get_global_step()


def normalised(features: Any, labels: Any, mode: str) -> Any:
    """BatchNorm with UPDATE_OPS, dropout, clipping, a schedule, a train_op like slim's, and drawn predictions."""
    x = _V1.layers.dense(features["x"], 8, kernel_regularizer=tf.keras.regularizers.L2(0.01))
    x = tf.nn.relu(_V1.layers.batch_normalization(x, training=mode == _TRAIN))
    x = _V1.layers.dropout(x, 0.3, training=mode == _TRAIN)

    def train(loss: Any) -> Any:
        optimizer = _V1.train.AdamOptimizer(_V1.train.exponential_decay(0.01, _step(), 6, 0.5))
        gradients, variables = zip(*optimizer.compute_gradients(loss))
        gradients, norm = tf.clip_by_global_norm(gradients, 1.0)
        _V1.summary.scalar("norm", norm)
        with tf.control_dependencies(_V1.get_collection(_V1.GraphKeys.UPDATE_OPS)):
            updated = optimizer.apply_gradients(zip(gradients, variables), _step())
        with tf.control_dependencies([updated]):
            return tf.identity(loss)

    spec = _spec(_V1.layers.dense(x, 3), labels, mode, train)
    if mode == _PREDICT:
        spec.predictions["sample"] = spec.predictions["logits"] + tf.random.normal([3])
    return spec


def plain(features: Any, labels: Any, mode: str) -> Any:
    """A dense network and an embedding with Adam, without anything that differs between replicas."""
    rows = tf.nn.embedding_lookup(_V1.get_variable("rows", [3, 4]), tf.cast(features["x"][:, 0] * 3, tf.int32))
    logits = _V1.layers.dense(tf.nn.relu(_V1.layers.dense(features["x"], 8)) + _V1.layers.dense(rows, 8), 3)

    def train(_: Any) -> Any:
        # A mean that is not a number where there is no example.
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        return _V1.train.AdamOptimizer(0.01).minimize(loss, _step())

    return _spec(logits, labels, mode, train)


def summed(features: Any, labels: Any, mode: str) -> Any:
    """A loss that is a sum, over a BatchNorm with UPDATE_OPS."""
    x = _V1.layers.batch_normalization(features["x"], training=mode == _TRAIN, momentum=0.5)
    logits = _V1.layers.dense(x, 3)
    if mode == _PREDICT:
        return tf.estimator.EstimatorSpec(mode, {"logits": logits})
    loss = _V1.losses.sparse_softmax_cross_entropy(labels, logits, reduction=_V1.losses.Reduction.SUM)
    with tf.control_dependencies(_V1.get_collection(_V1.GraphKeys.UPDATE_OPS)):
        train_op = _V1.train.GradientDescentOptimizer(0.01).minimize(loss, _step()) if mode == _TRAIN else None
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def in_python(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """A py_function in the loss, or in a metric only."""
    logits = _V1.layers.dense(features["x"], 3)
    seen = tf.py_function(lambda each: each, [logits], tf.float32)
    seen.set_shape(logits.shape)
    if params["where"] == "loss":
        logits = seen
    spec = _spec(logits, labels, mode, lambda loss: _V1.train.GradientDescentOptimizer(0.1).minimize(loss, _step()))
    if mode == _PREDICT:
        spec.predictions["seen"] = seen
    elif mode == _EVAL:
        spec.eval_metric_ops["in_python"] = _V1.metrics.mean(seen)
    return spec


def by_references(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """Variables that are what `use_resource` says, for training alone."""
    if mode != _TRAIN:
        raise NotImplementedError(mode)
    weight = _V1.get_variable("weight", [5, 3], use_resource=params["use_resource"])
    logits = tf.matmul(features["x"], weight)
    return _spec(logits, labels, mode, lambda loss: _V1.train.AdamOptimizer(0.1).minimize(loss, _step()))


class Fixed(_V1.train.Optimizer):
    """Has a learning rate that only Python knows."""

    def __init__(self) -> None:
        super().__init__(False, "Fixed")

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Any = None) -> Any:
        return tf.group(_step().assign_add(1), *(each.assign_sub(0.1 * gradient) for gradient, each in grads_and_vars))


def unscalable(features: Any, labels: Any, mode: str) -> Any:
    """An optimizer whose rate nothing can multiply."""
    logits = _V1.layers.dense(features["x"], 3)
    return _spec(logits, labels, mode, lambda loss: Fixed().minimize(loss, _step()))


def averaged(features: Any, labels: Any, mode: str) -> Any:
    """Moving averages, which evaluation and serving restore; and a hook."""
    logits = _V1.layers.dense(features["x"], 3)
    average = _V1.train.ExponentialMovingAverage(0.9)

    def train(loss: Any) -> Any:
        with tf.control_dependencies([_V1.train.MomentumOptimizer(0.05, 0.9).minimize(loss, _step())]):
            return average.apply(_V1.trainable_variables())

    more: dict[str, Any] = {}
    if mode == _PREDICT:
        scores = tf.estimator.export.ClassificationOutput(scores=tf.nn.softmax(logits))
        more["export_outputs"] = {
            "serving_default": scores,
            "predict": tf.estimator.export.PredictOutput({"scaled": logits * 2.0}),
        }
    if mode != _TRAIN:
        more["scaffold"] = _V1.train.Scaffold(saver=_V1.train.Saver(average.variables_to_restore()))
    hooks = [_V1.train.LoggingTensorHook([], at_end=True)]
    return _spec(logits, labels, mode, train, **more, training_hooks=hooks if mode == _TRAIN else None)


def of_text(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """A vocabulary's table, embeddings of sparse and ragged words, one of them in parts, and a local_init_op."""
    line, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
    initializer = tf.lookup.TextFileInitializer(params["vocabulary"], tf.string, line, tf.int64, number)
    table = tf.lookup.StaticVocabularyTable(initializer, 2)
    rows = _V1.get_variable("rows", [5, 4], partitioner=_V1.fixed_size_partitioner(2))
    tags = _V1.nn.embedding_lookup_sparse(rows, table.lookup(features["tags"]), None, combiner="mean")
    words = table.lookup(features["my words"].to_sparse())
    more = tf.reduce_sum(tf.nn.embedding_lookup(_V1.get_variable("more", [5, 2]), tf.sparse.to_dense(words)), 1)
    logits = _V1.layers.dense(tf.concat([tags, more], 1), 3)
    ready = _V1.get_local_variable("ready", [], initializer=_V1.zeros_initializer())
    spec = _spec(
        logits, features["label"], mode, lambda loss: _V1.train.AdagradOptimizer(0.1).minimize(loss * ready, _step())
    )
    if mode != _TRAIN:
        return spec
    with tf.control_dependencies([_V1.local_variables_initializer(), _V1.tables_initializer()]):
        return spec._replace(scaffold=_V1.train.Scaffold(local_init_op=ready.assign(1.0).op))


class DecayingAdam(_V1.train.Optimizer):
    """Assigns by itself, as BERT's AdamWeightDecayOptimizer."""

    def __init__(self, learning_rate: Any) -> None:
        super().__init__(False, "DecayingAdam")
        self.learning_rate = learning_rate

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Any = None) -> Any:
        updates = []
        for gradient, variable in grads_and_vars:
            m = _V1.get_variable(f"{variable.op.name}/adam_m", variable.shape, trainable=False,
                                 initializer=_V1.zeros_initializer())  # fmt: skip
            now = 0.9 * m + 0.1 * gradient
            updates += [m.assign(now), variable.assign(variable - self.learning_rate * (now + 0.01 * variable))]
        return tf.group(*updates)


def like_bert(features: Any, labels: Any, mode: str) -> Any:
    """An optimizer with its own apply_gradients, and a step of its own."""
    logits = _V1.layers.dense(tf.nn.tanh(_V1.layers.dense(features["x"], 6)), 3)

    def train(loss: Any) -> Any:
        variables = _V1.trainable_variables()
        optimizer = DecayingAdam(_V1.train.polynomial_decay(0.05, _step(), 50, 0.0))
        applied = optimizer.apply_gradients(zip(tf.gradients(loss, variables), variables))
        return tf.group(applied, [_step().assign(_step() + 1)])

    return _spec(logits, labels, mode, train)


def adversarial(features: Any, labels: Any, mode: str) -> Any:
    """Two optimizers: the second one's gradients are of the weights that the first one has changed."""
    with _V1.variable_scope("one"):
        hidden = _V1.layers.dense(features["x"], 4)
    with _V1.variable_scope("two"):
        logits = _V1.layers.dense(hidden, 3)

    def train(loss: Any) -> Any:
        first = _V1.train.GradientDescentOptimizer(0.1).minimize(-0.1 * loss, var_list=_V1.trainable_variables("one"))
        with tf.control_dependencies([first]):
            again = _V1.losses.sparse_softmax_cross_entropy(
                labels, tf.matmul(hidden, _V1.trainable_variables("two")[0].read_value())
            )
            optimizer = _V1.train.AdamOptimizer(0.01)
            return optimizer.minimize(again, _step(), var_list=_V1.trainable_variables("two")[:1])

    return _spec(logits, labels, mode, train)


def accumulated(features: Any, labels: Any, mode: str) -> Any:
    """Gradients that are accumulated by hand, and applied in a condition."""
    logits = _V1.layers.dense(features["x"], 3)

    def train(loss: Any) -> Any:
        optimizer = _V1.train.GradientDescentOptimizer(0.1)
        pairs = optimizer.compute_gradients(loss)
        sums = [_V1.get_variable(f"sum_{n}", each.shape, trainable=False) for n, (_, each) in enumerate(pairs)]
        with tf.control_dependencies([total.assign_add(each) for total, (each, _) in zip(sums, pairs)]):
            step = _V1.assign_add(_step(), 1)

        def apply() -> Any:
            applied = optimizer.apply_gradients([(total / 2.0, each) for total, (_, each) in zip(sums, pairs)])
            with tf.control_dependencies([applied]):
                return tf.group(*(total.assign(tf.zeros_like(total)) for total in sums))

        with tf.control_dependencies([step]):
            return tf.cond(step % 2 < 1, apply, tf.no_op)

    return _spec(logits, labels, mode, train)


def by_keras(features: Any, labels: Any, mode: str) -> Any:
    """Keras layers and a legacy optimizer of Keras, over a recurrent layer."""
    x = tf.reshape(features["x"], [-1, 5, 1])
    layers = [tf.keras.layers.LSTM(4), tf.keras.layers.LayerNormalization(), tf.keras.layers.Dense(3)]
    network = tf.keras.Sequential(layers)
    logits = network(x, training=mode == _TRAIN)

    def train(loss: Any) -> Any:
        optimizer = tf.keras.optimizers.legacy.RMSprop(0.01)
        optimizer.iterations = _step()
        return tf.group(optimizer.get_updates(loss, network.trainable_variables))

    return _spec(logits, labels, mode, train)
