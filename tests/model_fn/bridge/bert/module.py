"""A module file of TFX with BERT's own Estimator and input_fn."""

import gzip

import run_classifier
import tensorflow as tf
from copies import Copies
from modeling import BertConfig

LENGTH, INPUTS = 16, ("input_ids", "input_mask", "segment_ids")
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}


def read(patterns, records, is_training):
    # BERT's input_fn takes files that are not compressed.
    with tf.gfile.Open(records, "wb") as file:
        for path in tf.gfile.Glob(patterns):
            file.write(gzip.decompress(tf.gfile.Open(path, "rb").read()))
    return run_classifier.file_based_input_fn_builder(records, LENGTH, is_training, drop_remainder=is_training)


def receive():
    examples = tf.placeholder(tf.string, [None])
    features = tf.parse_example(examples, {name: tf.FixedLenFeature([LENGTH], tf.int64) for name in INPUTS})
    features["label_ids"] = tf.zeros_like(features["input_ids"])[:, 0]
    return tf.estimator.export.ServingInputReceiver(features, {"examples": examples})


def trainer_fn(fn_args, schema):
    config = BertConfig(87, max_position_embeddings=LENGTH, type_vocab_size=2, **SIZES)
    model_fn = run_classifier.model_fn_builder(config, 2, None, 1e-3, 40, 10, False, use_one_hot_embeddings=False)
    run_config = tf.contrib.tpu.RunConfig(model_dir=fn_args.serving_model_dir)
    train = read(fn_args.train_files, f"{fn_args.model_run_dir}/train.records", True)
    evaluate = read(fn_args.eval_files, f"{fn_args.model_run_dir}/eval.records", False)
    exporter = tf.estimator.FinalExporter("bert", receive)
    return {
        "estimator": tf.contrib.tpu.TPUEstimator(
            model_fn, config=run_config, use_tpu=False, train_batch_size=32, eval_batch_size=16
        ),
        "train_spec": tf.estimator.TrainSpec(train, fn_args.train_steps, hooks=[Copies()]),
        "eval_spec": tf.estimator.EvalSpec(evaluate, None, exporters=[exporter]),
    }
