"""A module file of TFX with DeepCTR's own Estimator and input_fn."""

import gzip
import tempfile

import tensorflow as tf
from deepctr.estimator import DeepFMEstimator
from deepctr.estimator.inputs import input_fn_tfrecord

WORDS, NUMBERS = [f"C{index}" for index in range(1, 27)], [f"I{index}" for index in range(1, 14)]
KINDS = {**dict.fromkeys(WORDS, tf.int64), **dict.fromkeys(NUMBERS, tf.float32)}
SPEC = {name: tf.io.FixedLenFeature([1], kind) for name, kind in KINDS.items()}


def read(patterns, **options):
    # DeepCTR's input_fn takes files that are not compressed; each worker has its own.
    with tempfile.NamedTemporaryFile(delete=False) as file:
        for path in tf.io.gfile.glob(patterns):
            file.write(gzip.decompress(tf.io.gfile.GFile(path, "rb").read()))
    spec = {**SPEC, "label": tf.io.FixedLenFeature([1], tf.float32)}
    return input_fn_tfrecord(file.name, spec, "label", 20, shuffle_factor=0, **options)


def trainer_fn(fn_args, schema):
    ids = [tf.feature_column.categorical_column_with_identity(name, 1000) for name in WORDS]
    numbers = [tf.feature_column.numeric_column(name) for name in NUMBERS]
    embeddings = [tf.feature_column.embedding_column(each, 4) for each in ids]
    config = tf.estimator.RunConfig(fn_args.serving_model_dir, tf_random_seed=2021)
    estimator = DeepFMEstimator([*ids, *numbers], [*embeddings, *numbers], task="binary", config=config)
    receive = tf.estimator.export.build_parsing_serving_input_receiver_fn(SPEC)
    exporter = tf.estimator.FinalExporter("ctr", receive)
    return {
        "estimator": estimator,
        "train_spec": tf.estimator.TrainSpec(read(fn_args.train_files, num_epochs=None), fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(read(fn_args.eval_files), None, exporters=[exporter]),
    }
