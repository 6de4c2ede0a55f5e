"""A model's export contains everything that its answers need."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.keras.drivers import make_execute
from tfx_estimator.components.trainer.keras.saving import Saver, ServedModel, restore_weights
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, TaskSpec
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.step.compiled_classifier import CompiledClassifier
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
from tfx_estimator.pipeline.config.trainer import TrainerSection


class Decoded(tf.keras.layers.Layer):
    """A stand-in for a Transform graph: the raw bytes as floats."""

    def __init__(self, shape=(2, 2, 1)):
        super().__init__()
        self.shape = shape

    def call(self, inputs):
        pixels = tf.io.decode_raw(tf.reshape(inputs["image"], [-1]), tf.uint8)
        return {"image": tf.cast(tf.reshape(pixels, [-1, *self.shape]), tf.float32)}


SECTION = TrainerSection(model="mnist_cnn", train_steps=1, global_batch_size=2, optimizer={"name": "adam"})
IMAGES = np.array([10, 20, 30, 40, 7, 10, 20, 10], np.uint8).reshape(2, 2, 2, 1)


def save(model, folder, shape, make=Decoded):
    """Exports a model for images of a shape."""
    declared = SimpleNamespace(
        transform_output=SimpleNamespace(transform_features_layer=lambda: make(shape)),
        label="label",
        served_spec={"image": tf.io.FixedLenFeature([], tf.string)},
    )
    served = ServedModel(model, declared, Settings(image_shape=shape, label_names=("a", "b", "c")))
    tf.saved_model.save(served, str(folder), signatures=served.signatures())


def export(model, folder):
    """Returns the exported model's answers."""
    save(model, folder, IMAGES.shape[1:])
    answers = tf.saved_model.load(str(folder)).signatures["images"](images=tf.constant(IMAGES))
    return {name: value.numpy() for name, value in answers.items()}


def table(factor: int) -> tf.lookup.StaticHashTable:
    keys = tf.constant([10, 20, 30], tf.int64)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, keys * factor), 0)


class Kept(tf.Module):
    """A module with tables in nested containers, which a layer alone would not find."""

    def __init__(self):
        super().__init__()
        self.tables = [table(2), {"thrice": table(3)}]

    def __call__(self, inputs):
        return self.tables[0].lookup(inputs) + self.tables[1]["thrice"].lookup(inputs)


class Published(tf.Module):
    """A foreign SavedModel with weights and a vocabulary file."""

    def __init__(self, vocabulary):
        super().__init__()
        rows = tf.lookup.TextFileInitializer(
            vocabulary, tf.int64, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
        )
        self.table, self.asset = tf.lookup.StaticHashTable(rows, 0), tf.saved_model.Asset(vocabulary)
        self.weight = tf.Variable(tf.reshape(tf.range(12.0), [3, 4]))

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.int64)])
    def __call__(self, inputs):
        rows = tf.cast(self.table.lookup(inputs), tf.float32)
        # Read at each call, as by a `preprocessing_fn`.
        rows += tf.cast(tf.strings.length(tf.io.read_file(self.asset.asset_path)), tf.float32)
        return tf.gather(self.weight, self.table.lookup(inputs[:, 0])) * (1.0 + rows)


class Reading(tf.keras.layers.Layer):
    """Looks up in nested tables, and calls a loaded model."""

    def __init__(self, folder):
        super().__init__()
        self.kept = {"module": Kept()}
        self.loaded = tf.saved_model.load(folder)

    def call(self, inputs, training=False):
        if training:
            # Changes like a state of its own.
            self.loaded.weight.assign_add(tf.ones_like(self.loaded.weight))
        words = tf.cast(inputs, tf.int64)
        return self.loaded(words) + tf.cast(self.kept["module"](words), tf.float32)


def reading(folder, is_compiled):
    """A network with such a layer, as on either Keras path."""
    image = tf.keras.Input((2, 2, 1), name="image")
    hidden = Reading(folder)(tf.keras.layers.Flatten()(image))
    network = tf.keras.Model(image, tf.keras.layers.Dense(3, name="logits")(hidden))
    if not is_compiled:
        model = KerasClassifier(network, SECTION)
        model.compile(optimizer=DeclaredOptimizer(SECTION.optimizer, 1))
        model.optimizer._create_all_weights(model.trainable_variables)
        return model
    network.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    network.optimizer.build(network.trainable_variables)
    model = CompiledClassifier(network, SECTION, 3)
    model.compile(optimizer=network.optimizer)
    return model


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("driver", ["fit", "loop"])
def test_tables_anywhere_and_loaded_models_are_saved_restored_and_exported(tmp_path, is_compiled, driver):
    vocabulary, published = tmp_path / "words.txt", str(tmp_path / "published")
    vocabulary.write_text("30\n20\n10\n")
    tf.saved_model.save(Published(str(vocabulary)), published)
    vocabulary.unlink()
    model, task = reading(published, is_compiled), TaskSpec(CHIEF, 0, 1)
    (layer,) = (each for each in model._flatten_layers() if isinstance(each, Reading))
    before = layer.loaded.weight.numpy()
    batches = tf.data.Dataset.from_tensors(({"image": IMAGES.astype(np.float32)}, np.array([0, 2]))).repeat()
    if driver == "fit":
        model.fit(batches, steps_per_epoch=2, verbose=0)
    else:
        execute = make_execute(model, tf.distribute.get_strategy())
        execute(iter(batches), tf.constant(2, tf.int64))
    # The loaded weight is none of Keras's: only the layer's own assignment changes it.
    assert {each.name for each in model.trainable_variables} == {"logits/kernel:0", "logits/bias:0"}
    np.testing.assert_array_equal(layer.loaded.weight.numpy(), before + 2)
    Saver(model, str(tmp_path / "training"), 1, task).save(2)
    expected = model({"image": IMAGES.astype(np.float32)}).numpy()

    again = reading(published, is_compiled)
    assert Saver(again, str(tmp_path / "training"), 1, task).restore() == 2
    np.testing.assert_array_equal(again({"image": IMAGES.astype(np.float32)}), expected)
    exported = reading(published, is_compiled)
    restore_weights(exported, tf.train.latest_checkpoint(str(tmp_path / "training")))
    np.testing.assert_allclose(export(exported, tmp_path / "export")["logits"], expected, rtol=1e-6)
    # The optimizer's slots are as large as the weights.
    names = [name for name, _ in tf.train.list_variables(str(tmp_path / "export" / "variables" / "variables"))]
    assert not [name for name in names if "optimizer" in name]


class Measured(tf.keras.layers.Layer):
    """Measures its inputs with its own metrics, in various places, and with one that Keras creates."""

    def __init__(self):
        super().__init__()
        self.mean, self.kept = tf.keras.metrics.Mean(name="own"), {"sum": tf.keras.metrics.Sum(name="kept")}

    def call(self, inputs):
        self.add_metric(self.mean(inputs))
        self.add_metric(tf.reduce_mean(inputs), name="made")
        self.kept["sum"].update_state(inputs)
        return inputs


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_model_with_add_metric_is_exported(tmp_path, is_compiled):
    network = tf.keras.Sequential([tf.keras.layers.Flatten(), Measured(), tf.keras.layers.Dense(3)])
    expected = network(IMAGES.astype(np.float32)).numpy()
    if is_compiled:
        network.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model = CompiledClassifier(network, SECTION, 3) if is_compiled else KerasClassifier(network, SECTION)
    np.testing.assert_allclose(export(model, tmp_path)["logits"], expected, atol=1e-5)


def test_the_vocabulary_of_a_transform_graph_is_exported(tmp_path):
    vocabulary, published = tmp_path / "words.txt", str(tmp_path / "transform_fn")
    vocabulary.write_text("30\n20\n10\n")
    tf.saved_model.save(Published(str(vocabulary)), published)

    class Ranked(Decoded):
        """Looks up the raw bytes, as `tft.compute_and_apply_vocabulary` does words."""

        def __init__(self, shape):
            super().__init__(shape)
            self.loaded = tf.saved_model.load(published)

        def call(self, inputs):
            words = tf.reshape(tf.cast(super().call(inputs)["image"], tf.int64), [-1, 4])
            return {"image": tf.reshape(self.loaded(words), [-1, *self.shape])}

    network = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(3)])
    ranked = tf.saved_model.load(published)(tf.constant(IMAGES.reshape(2, 4), tf.int64))
    expected = network(ranked)
    save(KerasClassifier(network, SECTION), tmp_path / "export", IMAGES.shape[1:], Ranked)
    shutil.rmtree(published)
    served = tf.saved_model.load((tmp_path / "export").rename(tmp_path / "moved"))
    found = served.signatures["images"](images=tf.constant(IMAGES))
    np.testing.assert_allclose(found["logits"], expected, rtol=1e-5)
