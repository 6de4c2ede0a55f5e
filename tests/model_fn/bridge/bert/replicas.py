"""Trains BERT's classifier under two replicas, as a trainer_fn's Estimator is; prints which copies differ."""

import sys
import tempfile

import run_classifier
import tensorflow as tf
from copies import Copies
from modeling import BertConfig
from tokenization import FullTokenizer

from tfx_estimator.components.trainer.estimator.distribute import distribute
from tfx_estimator.components.trainer.user_input.shared_batches import share
from tfx_estimator.model_fn.bridge.tpu import without_tpu
from tfx_estimator.model_fn.parallel.strategies import configure_devices, make_strategy
from tfx_estimator.pipeline.config.distribution import TrainStrategy

folder = sys.argv[1]
section = TrainStrategy.parse_obj({"strategy": "mirrored", "devices": {"cpu": 2}})
configure_devices(section)
strategy = make_strategy(section)
processor, records = run_classifier.ColaProcessor(), f"{folder}/records"
run_classifier.file_based_convert_examples_to_features(
    processor.get_train_examples(folder), processor.get_labels(), 16, FullTokenizer(f"{folder}/vocab.txt"), records
)
config = BertConfig.from_json_file(f"{folder}/config.json")
estimator = tf.contrib.tpu.TPUEstimator(
    use_tpu=False,
    model_fn=run_classifier.model_fn_builder(
        config, 2, None, 1e-3, 40, 10, use_tpu=False, use_one_hot_embeddings=False
    ),
    config=tf.contrib.tpu.RunConfig(model_dir=tempfile.mkdtemp()),
    train_batch_size=32,
)
made = distribute(without_tpu(estimator), strategy, None, in_cluster=False)
input_fn = run_classifier.file_based_input_fn_builder(records, 16, is_training=True, drop_remainder=True)
made.train(share(input_fn), steps=20, hooks=[Copies()])
