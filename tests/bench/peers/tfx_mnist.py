"""The shape of TFX's official MNIST example: float lists, inferred schema, materialised Transform, its Beam options.

Source: `tfx.examples.mnist.mnist_pipeline_native_keras` of the installed TFX. Its second branch, the TFLite
trainer, evaluator and pusher, is left out: it would only add to the cost. Its splits are named instead of hashed, so
that both sides of the benchmark train and evaluate on the same examples.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

import tensorflow_datasets as tfds
import tensorflow_model_analysis as tfma
from tfx.components import (
    Evaluator,
    ExampleValidator,
    ImportExampleGen,
    Pusher,
    SchemaGen,
    StatisticsGen,
    Trainer,
    Transform,
)
from tfx.orchestration import metadata
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import example_gen_pb2, pusher_pb2, trainer_pb2

BEAM_ARGS = ["--direct_running_mode=multi_processing", "--direct_num_workers=0"]
# The example validates on 100 batches of 40.
VALIDATION_EXAMPLES = 4_000
_MODULE_FILE = os.path.join(os.path.dirname(__file__), "tfx_mnist_module.py")


def write_floats(data_dir: Optional[str], folder: Path) -> None:
    """Writes MNIST in the example's format: a TFRecord file per split, 784 floats in [-0.5, 0.5] and the class."""
    import tensorflow as tf

    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        path = folder / f"{split}.tfrecord"
        if path.exists():
            continue
        unfinished = path.with_suffix(".unfinished")
        with tf.io.TFRecordWriter(str(unfinished)) as writer:
            for image, label in tfds.load(
                "mnist", split=split, data_dir=data_dir, as_supervised=True
            ).as_numpy_iterator():
                floats = tf.train.FloatList(value=(image.reshape(-1) / 255.0 - 0.5).tolist())
                feature = {
                    "image_floats": tf.train.Feature(float_list=floats),
                    "image_class": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(label)])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
        unfinished.rename(path)


def create_pipeline(data_root: str, home: str, train_steps: int, batch_size: int) -> Pipeline:
    splits = [("train", "train.tfrecord"), ("eval", "test.tfrecord")]
    example_gen = ImportExampleGen(
        input_base=data_root,
        input_config=example_gen_pb2.Input(
            splits=[example_gen_pb2.Input.Split(name=name, pattern=pattern) for name, pattern in splits]
        ),
    )
    examples = example_gen.outputs["examples"]
    statistics_gen = StatisticsGen(examples=examples)
    schema_gen = SchemaGen(statistics=statistics_gen.outputs["statistics"], infer_feature_shape=True)
    schema = schema_gen.outputs["schema"]
    validator = ExampleValidator(statistics=statistics_gen.outputs["statistics"], schema=schema)
    transform = Transform(examples=examples, schema=schema, module_file=_MODULE_FILE)
    trainer = Trainer(
        module_file=_MODULE_FILE,
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        schema=schema,
        train_args=trainer_pb2.TrainArgs(num_steps=train_steps),
        eval_args=trainer_pb2.EvalArgs(num_steps=VALIDATION_EXAMPLES // batch_size),
    )
    accuracy = tfma.MetricConfig(
        class_name="SparseCategoricalAccuracy",
        threshold=tfma.MetricThreshold(value_threshold=tfma.GenericValueThreshold(lower_bound={"value": 0.8})),
    )
    evaluator = Evaluator(
        examples=examples,
        model=trainer.outputs["model"],
        eval_config=tfma.EvalConfig(
            model_specs=[tfma.ModelSpec(label_key="image_class")],
            slicing_specs=[tfma.SlicingSpec()],
            metrics_specs=[tfma.MetricsSpec(metrics=[accuracy])],
        ),
    )
    pusher = Pusher(
        model=trainer.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        push_destination=pusher_pb2.PushDestination(
            filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=os.path.join(home, "serving"))
        ),
    )
    return Pipeline(
        pipeline_name="mnist_native_keras",
        pipeline_root=os.path.join(home, "artifacts"),
        components=[example_gen, statistics_gen, schema_gen, validator, transform, trainer, evaluator, pusher],
        enable_cache=True,
        metadata_connection_config=metadata.sqlite_metadata_connection_config(os.path.join(home, "metadata.sqlite")),
        beam_pipeline_args=BEAM_ARGS,
    )
