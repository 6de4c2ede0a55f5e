"""The tutorial of examples/multi-worker-tutorial with a seed for its weights, and the loss of each step in its events.

As a program it trains by plain tf.estimator, without this project.
"""

import sys
from types import SimpleNamespace

import tensorflow as tf
import tutorial

STRATEGIES = {
    "mirrored": lambda: tf.distribute.MirroredStrategy(
        ["/cpu:0", "/cpu:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    ),
    "multi_worker_mirrored": tf.distribute.MultiWorkerMirroredStrategy,
    "parameter_server": tf.compat.v1.distribute.experimental.ParameterServerStrategy,
}


def model_fn(features, labels, mode):
    # Keras draws the seeds of its initializers from its own generator.
    tf.keras.utils.set_random_seed(1)
    return tutorial.model_fn(features, labels, mode)


def trainer_fn(fn_args, schema, **options):
    config = tf.estimator.RunConfig(fn_args.serving_model_dir, 1, save_summary_steps=1, **options)
    return {**tutorial.trainer_fn(fn_args, schema), "estimator": tf.estimator.Estimator(model_fn, config=config)}


def tensors_trainer_fn(fn_args, schema):
    """Has an input_fn that returns tensors, like in TensorFlow 1."""
    spec = trainer_fn(fn_args, schema)
    batches = spec["train_spec"].input_fn

    def input_fn(mode):
        return tf.compat.v1.data.make_one_shot_iterator(batches(mode)).get_next()

    return {**spec, "train_spec": tf.estimator.TrainSpec(input_fn, max_steps=fn_args.train_steps)}


def main(strategy, examples, folder, steps):
    if strategy == "mirrored":
        halves = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], halves)
    fn_args = SimpleNamespace(
        train_files=[f"{examples}/Split-train/*"],
        eval_files=[f"{examples}/Split-eval/*"],
        train_steps=int(steps),
        serving_model_dir=folder,
    )
    spec = trainer_fn(fn_args, None, train_distribute=STRATEGIES[strategy]())
    eval_spec = spec["eval_spec"]._replace(exporters=())
    tf.estimator.train_and_evaluate(spec["estimator"], spec["train_spec"], eval_spec)


if __name__ == "__main__":
    main(*sys.argv[1:])
