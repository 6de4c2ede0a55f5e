"""Source of a written run_fn: functions copied verbatim after the header that `run_fn.py` writes.

It needs network.py next to it, TensorFlow, TFX, and the user's module with the trainer_fn.
"""

from __future__ import annotations

import inspect
import os
import tempfile
from typing import Any

import tensorflow as tf

# Placeholders: `run_fn.py` writes these names.
network: Any = None
CONVERTED, SAVE_STEPS = "", 0
SIGNATURES: dict[str, Any] = {}
NAMES: list[str] = []


def specs(fn_args):
    """Placeholder: `run_fn.py` writes it."""
    raise NotImplementedError


def answers(logits):
    """Placeholder: `run_fn.py` writes it."""
    raise NotImplementedError


def metrics():
    """Placeholder: `run_fn.py` writes it."""
    raise NotImplementedError


def run_fn(fn_args):
    """Resumes training, evaluates and exports; called by TFX's Trainer."""
    network.HERE = CONVERTED
    before = specs(fn_args)
    training, evaluation = before["train_spec"], before["eval_spec"]
    with tf.distribute.get_strategy().scope():
        model = network.network()
        model.compile(weighted_metrics=metrics())
        network.restore(model)
    begun = int(next(iter(model.by_part.values())).iterations.numpy())
    steps = None if training.max_steps is None else training.max_steps - begun
    if steps is None or steps > 0:
        # After a restart fit resumes from this backup.
        folder = os.path.join(fn_args.model_run_dir, "backup")
        backup = tf.keras.callbacks.BackupAndRestore(folder, SAVE_STEPS, delete_checkpoint=False)
        model.fit(batches(training.input_fn, "train"), steps_per_epoch=steps, callbacks=[backup], verbose=2)
    else:
        print(f"nothing to train: the Estimator has finished {begun} steps, and max_steps is {training.max_steps}")
    model.evaluate(batches(evaluation.input_fn, "eval"), steps=evaluation.steps, verbose=2)
    export(model, receiver_fn(evaluation.exporters), fn_args.serving_model_dir)


def schema(fn_args):
    """Returns the schema, as TFX passes it to a trainer_fn; None if the Trainer has none."""
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx import v1 as tfx

    path = fn_args.schema_path
    return tfx.utils.parse_pbtxt_file(path, schema_pb2.Schema()) if path else None


def batches(input_fn, mode):
    """Returns the batches of an input_fn, called as an Estimator calls it."""
    known = {"mode": mode, "input_context": tf.distribute.InputContext()}
    parameters = inspect.signature(input_fn).parameters.values()
    given = {each.name: known[each.name] for each in parameters if each.name in known and each.default is each.empty}
    return input_fn(**given).map(network.prepare)


def receiver_fn(exporters):
    """Returns the serving_input_receiver_fn of the first exporter."""
    found = []

    class Estimator:
        """Records the receiver that an exporter passes."""

        model_dir = ""

        def export_saved_model(self, export_dir_base, serving_input_receiver_fn, **options):
            found.append(serving_input_receiver_fn)

    with tempfile.TemporaryDirectory() as folder:
        Estimator.model_dir = folder
        exporters[0].export(Estimator(), folder, None, {"loss": 0.0}, is_the_final_export=True)
    return found[0]


def export(model, serving_input_receiver_fn, folder):
    """Saves the model with the Estimator's signatures: the same names, inputs and outputs."""
    served = tf.Module()
    with tempfile.TemporaryDirectory() as draft:
        received = receive(serving_input_receiver_fn, draft)
        served.received = tf.saved_model.load(draft)
        # A copy without the optimizers, created only now: a Keras layer created in a graph breaks earlier ones.
        served.model = network.network()
        for empty, layer in zip(served.model.layers, model.layers):
            empty.set_weights(layer.get_weights())
        made, methods = {}, {}
        for name, (method, outputs) in SIGNATURES.items():
            given = received
            # As in TensorFlow, classify and regress take only serialized examples.
            if method != "predict":
                if [each.dtype for each in received.values()] != [tf.string]:
                    continue
                given = {"inputs": tf.TensorSpec([None], tf.string, "inputs")}
            made[name] = answering(served, list(received), outputs).get_concrete_function(**given)
            methods[name] = f"tensorflow/serving/{method}"
        tf.saved_model.save(served, folder, made)
    # The methods by which clients of TensorFlow Serving call the signatures.
    updater = tf.compat.v1.saved_model.signature_def_utils.MethodNameUpdater(folder)
    for name, method in methods.items():
        updater.replace_method_name(name, method, tags="serve")
    updater.save()


def answering(served, names, outputs):
    """Returns the function of a signature."""
    receiver = served.received.signatures["serving_default"]

    @tf.function
    def answer(**given):
        # TensorFlow names the only input of classify and regress `inputs`.
        inputs = given if set(given) == set(names) else dict(zip(names, given.values()))
        found = answers(served.model(receiver(**inputs), training=False))
        return {key: found[each] for key, each in outputs.items()}

    return answer


def receive(serving_input_receiver_fn, folder):
    """Saves the receiver's graph, from client inputs to the model's inputs; returns the specs of the client inputs."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        receiver = serving_input_receiver_fn()
        inputs = network.prepare(receiver.features)
        tables = tf.compat.v1.tables_initializer()
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer(), tables])
        tf.compat.v1.saved_model.simple_save(session, folder, receiver.receiver_tensors, inputs, tables)
        return {name: tf.TensorSpec(each.shape, each.dtype, name) for name, each in receiver.receiver_tensors.items()}


def answers_of_classes(logits):
    """Returns the Estimator's outputs by name."""
    rows = tf.shape(logits)[0]
    probabilities = tf.nn.softmax(logits)
    ids = tf.argmax(logits, axis=-1)[:, tf.newaxis]
    every = tf.tile(tf.range(len(NAMES))[tf.newaxis], [rows, 1])
    return {
        "logits": logits,
        "probabilities": probabilities,
        "class_ids": ids,
        "classes": tf.gather(NAMES, ids),
        "all_class_ids": every,
        "all_classes": tf.gather(NAMES, every),
    }


def answers_of_two(logits):
    """Returns the Estimator's outputs by name."""
    both = answers_of_classes(tf.concat([tf.zeros_like(logits), logits], axis=-1))
    return {**both, "logits": logits, "logistic": tf.sigmoid(logits)}


def answers_of_labels(logits):
    """Returns the Estimator's outputs by name."""
    every = tf.tile(tf.constant([NAMES]), [tf.shape(logits)[0], 1])
    return {"logits": logits, "probabilities": tf.sigmoid(logits), "classes": every, "all_classes": every}


def answers_of_numbers(logits):
    """Returns the Estimator's outputs by name."""
    return {"predictions": logits}
