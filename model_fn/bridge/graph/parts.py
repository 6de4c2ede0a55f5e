"""Source that is copied verbatim into a written network.py. It needs only TensorFlow, with Keras 2."""

from __future__ import annotations

import os

import tensorflow as tf

GRAPH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "graph")
SIGNATURE, OUTPUT = "serving_default", "logits"
METHODS: dict[str, str] = {}


@tf.keras.utils.register_keras_serializable("network")
class ExportedGraph(tf.keras.layers.Layer):
    """The exported graph. Its variables are the layer's weights; those that the Estimator trained are trainable.

    Args:
        signature: The graph's signature to call; the layer returns a dict of all its outputs.
    """

    def __init__(self, signature=SIGNATURE, **options):
        super().__init__(**options)
        self.signature = signature
        self.exported = tf.saved_model.load(GRAPH, tags=["serve"])
        # Keras finds weights among a layer's attributes.
        self.of_graph = self.exported.variables

    def call(self, inputs):
        return self.exported.signatures[self.signature](**inputs)

    def get_config(self):
        return {**super().get_config(), "signature": self.signature}


def network(signature=SIGNATURE, output=OUTPUT):
    """Returns the model with the export's weights, from a dict of the signature's inputs to one output."""
    layer = ExportedGraph(signature, name="graph")
    takes = layer.exported.signatures[signature].structured_input_signature[1]
    inputs = {name: tf.keras.Input(type_spec=each) for name, each in takes.items()}
    return tf.keras.Model(inputs, layer(inputs)[output])


def export(model, folder):
    """Writes a SavedModel with all signatures of the old one, and the model's current weights."""
    exported = model.get_layer("graph").exported
    tf.saved_model.save(exported, folder, signatures=dict(exported.signatures))
    updater = tf.compat.v1.saved_model.signature_def_utils.MethodNameUpdater(folder)
    for name, method in METHODS.items():  # TensorFlow 2 writes Predict for all
        updater.replace_method_name(name, method, tags="serve")
    updater.save()
