"""A run_fn whose module says `import keras`: Keras 3 on today's stack, beside the Keras 2 of `tf.keras`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfx_estimator.components.trainer.settings import Settings

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

# TOLD stands for a file.
MODULE = """
import keras
import tensorflow as tf
import tensorflow_transform as tft


def run_fn(fn_args):
    graph = tft.TFTransformOutput(fn_args.transform_output)
    spec = graph.raw_feature_spec()

    def parse(serialized):
        transformed = graph.transform_raw_features(tf.io.parse_example(serialized, spec))
        return tf.reshape(transformed["image"], [-1, 784]), transformed["label"]

    def read(files):
        return tf.data.TFRecordDataset(tf.io.gfile.glob(files)).batch(32).map(parse)

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input([784]), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    model.fit(read(fn_args.train_files), epochs=6, verbose=2)
    accuracy = model.evaluate(read(fn_args.eval_files), return_dict=True, verbose=0)["accuracy"]
    model.export(fn_args.serving_model_dir)
    with open(TOLD, "w") as file:
        print(keras.__version__[0], tf.keras.layers.Layer.__module__.split(".")[0], accuracy, file=file)
"""


def test_it_trains_and_exports(training, tmp_path: Path):
    import tensorflow as tf

    from tfx_estimator.pipeline.base.stack import stacks

    module, told = tmp_path / "keras_module.py", tmp_path / "told"
    module.write_text(MODULE.replace("TOLD", repr(str(told))))
    model, _ = training.run(Settings(), module_file=str(module))
    of_module, of_tensorflow, accuracy = told.read_text().split()
    expected = ("2", "keras") if stacks.current() is stacks.LEGACY else ("3", "tf_keras")
    assert (of_module, of_tensorflow) == expected
    assert float(accuracy) > 0.9
    served = tf.saved_model.load(str(model / "Format-Serving"))
    (logits,) = served.signatures["serving_default"](tf.zeros([2, 784])).values()
    assert logits.shape == (2, 10)
