"""Trains public networks from weights that NumPy draws, the same on each stack; prints what they reach.

python -m tfx_estimator.estimator --tf1 drawn_weights.py slim
python -m tfx_estimator.estimator drawn_weights.py ranking FILE
"""

import json
import sys
import tempfile

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
STEPS = 10


class Drawn(v1.train.SessionRunHook):
    """Sets the weights of a new training."""

    def after_create_session(self, session, coord):
        random = np.random.RandomState(0)
        for each in sorted(v1.trainable_variables(), key=lambda each: each.name):
            fan = max(1, int(np.prod(each.shape[:-1])))
            each.load(random.normal(0, fan**-0.5, each.shape) + ("gamma" in each.name), session)


def slim():
    """A small ResNet of tf_slim, with its normalisation, its penalties and its train_op; and its input_fn."""
    from tensorflow.contrib import slim
    from tensorflow.contrib.slim.nets import resnet_v2

    def model_fn(features, labels, mode):
        blocks = [resnet_v2.resnet_v2_block(f"block{size}", size, num_units=2, stride=2) for size in (4, 8)]
        with slim.arg_scope(resnet_v2.resnet_arg_scope(batch_norm_decay=0.8)):
            net, _ = resnet_v2.resnet_v2(features["image"], blocks, 10, is_training=mode == "train")
        logits = tf.squeeze(net, [1, 2])
        slim.losses.sparse_softmax_cross_entropy(logits, labels)
        loss = slim.losses.get_total_loss()
        train_op = slim.learning.create_train_op(loss, tf.train.MomentumOptimizer(0.05, 0.9))
        metrics = {"accuracy": slim.metrics.streaming_accuracy(tf.argmax(logits, 1), labels)}
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)

    def input_fn():
        random = np.random.RandomState(1)
        labels = random.randint(0, 10, 64)
        images = random.rand(64, 32, 32, 3).astype("float32") + labels[:, None, None, None]
        return tf.data.Dataset.from_tensor_slices(({"image": images}, labels)).batch(16).repeat(3)

    return tf.estimator.Estimator(model_fn, tempfile.mkdtemp()), input_fn


def ranking(path):
    """A canned Estimator of tensorflow/ranking; and its input_fn."""
    import tensorflow_ranking as tfr

    columns = {
        f"custom_features_{index}": tf.feature_column.numeric_column(f"custom_features_{index}", default_value=0.0)
        for index in range(1, 137)
    }
    labels = {"utility": tf.io.FixedLenFeature([1], tf.int64, -1)}
    spec = {**tf.feature_column.make_parse_example_spec(columns.values()), **labels}

    def input_fn():
        given = {"data_format": tfr.data.ELWC, "context_feature_spec": {}, "example_feature_spec": spec}
        data = tfr.data.build_ranking_dataset(path, batch_size=4, list_size=10, shuffle=False, num_epochs=20, **given)
        return data.map(lambda each: (each, tf.cast(tf.squeeze(each.pop("utility"), 2), tf.float32)))

    estimator = tfr.estimator.make_dnn_ranking_estimator(
        columns, ["16", "8"], loss="approx_ndcg_loss", optimizer=v1.train.AdagradOptimizer(0.05), use_batch_norm=True
    )
    return estimator, input_fn


if __name__ == "__main__":
    estimator, input_fn = globals()[sys.argv[1]](*sys.argv[2:])
    estimator.train(input_fn, steps=STEPS, hooks=[Drawn()])
    metrics = estimator.evaluate(input_fn, steps=4)
    print(json.dumps({name: float(each) for name, each in metrics.items()}))
