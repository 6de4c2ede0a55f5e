"""Writes a module with a run_fn that resumes the training of a trainer_fn, and replaces it in TFX's Trainer."""

from __future__ import annotations

import dataclasses
import inspect
import os
import zipfile
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tfx.types.standard_component_specs import MODULE_PATH_KEY
from tfx.utils import io_utils

from tfx_estimator.model_fn.bridge.canned.head import BINARY, CLASSES, LABELS, REGRESSION, Head
from tfx_estimator.model_fn.bridge.canned.reading import Canned
from tfx_estimator.model_fn.bridge.canned.text import indented, literal
from tfx_estimator.model_fn.bridge.kept.inputs import InputFn
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.convert import run_fn_parts

_HEADER = '''\
"""Resumes the training of {function} with Keras, in TFX's Trainer:

    Trainer(module_file="{folder}/{name}.py", ...)

It starts from the Estimator's weights, slots and step, in weights.npz; reads the batches of its input_fns; and exports
its signatures. To train from scratch, remove `network.restore(model)`. This file is yours to change. Like network.py it
needs Keras 2.
"""

import inspect
import os
import tempfile

import tensorflow as tf

if not hasattr(tf, "estimator"):
    # {module} creates an Estimator along with its input_fns. Nothing else here needs one.
    import tfx_estimator

    tfx_estimator.bring_back_estimator()

import network
import {module}

# The folder of weights.npz and network.py's vocabularies: TFX copies only modules to where it trains.
CONVERTED = {converted}
# Steps between backups.
SAVE_STEPS = {save_steps}
# By the signature's name: its method, and its outputs with their names in answers().
SIGNATURES = {signatures}


def specs(fn_args):
    """Returns the TrainSpec and the EvalSpec, with the input_fns and the exporters."""
    return {function}(fn_args, schema(fn_args))
'''
_ALWAYS = ("run_fn", "schema", "batches", "receiver_fn", "export", "answering", "receive")
_METRICS = {
    BINARY: [
        'tf.keras.metrics.BinaryAccuracy("accuracy", threshold=0.0)',
        'tf.keras.metrics.AUC(from_logits=True, name="auc")',
    ],
    CLASSES: ['tf.keras.metrics.SparseCategoricalAccuracy("accuracy")'],
    LABELS: ['tf.keras.metrics.AUC(from_logits=True, name="auc")'],
    REGRESSION: ['tf.keras.metrics.MeanSquaredError("average_loss")'],
}
# Keys of answers(), by the kind of head.
_NAMES = {"logits", "probabilities", "class_ids", "classes", "all_class_ids", "all_classes"}
_OF_LABELS = {"logits", "probabilities", "classes", "all_classes"}
_KNOWN = {BINARY: {*_NAMES, "logistic"}, CLASSES: _NAMES, LABELS: _OF_LABELS, REGRESSION: {"predictions"}}
# Outputs of a classify signature, which returns all classes.
_OF_CLASSES = {"scores": "probabilities", "classes": "all_classes"}


@dataclasses.dataclass(frozen=True)
class TrainerFn:
    """A user's trainer_fn, with the modules that TFX packed, by file name; none if it is imported from elsewhere."""

    module: str
    name: str
    files: Mapping[str, bytes]

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> TrainerFn:
        """Returns the trainer_fn of a Trainer's execution properties."""
        module, _, wheel = (properties.get(MODULE_PATH_KEY) or "").partition("@")
        if not module:
            module, _, name = properties["trainer_fn"].rpartition(".")
            return cls(module, name, {})
        if not wheel:
            return cls(module, "trainer_fn", {})
        with zipfile.ZipFile(io_utils.ensure_local(wheel)) as file:
            names = [each for each in file.namelist() if each.endswith(".py")]
            return cls(module, "trainer_fn", {each: file.read(each) for each in names})


def write(
    folder: str,
    converted: str,
    function: TrainerFn,
    canned: Canned,
    estimator: Any,
    train: InputFn,
    exporters: Any,
    is_keras_3: bool,
) -> tuple[str, str]:
    """Writes the module, and the user's own next to it; returns its name, or why there is none."""
    is_dataset, signatures = _signatures(estimator, train)
    served = {answer for _, outputs in signatures.values() for answer in outputs.values()}
    reasons = {
        "TFX trains with Keras 2": is_keras_3,
        "its input_fn returns the tensors of a graph, and no tf.data.Dataset": not is_dataset,
        "its eval_spec has no exporter, which defines the served inputs": not exporters,
        "its module has a network.py next to it, a name that the conversion uses": "network.py" in function.files,
        "this head has other signatures than those of classes and numbers": not served <= _KNOWN[canned.head.kind],
    }
    if why := next((why for why, holds in reasons.items() if holds), ""):
        return "", why
    name = f"{function.module.rpartition('.')[2]}_keras"
    text = _HEADER.format(
        function=f"{function.module}.{function.name}",
        module=function.module,
        name=name,
        folder=os.path.basename(converted),
        converted=literal(converted),
        save_steps=estimator.config.save_checkpoints_steps or 1000,
        signatures=_table(signatures),
    )
    body = [text, *_answers(canned.head), *(inspect.getsource(getattr(run_fn_parts, each)) for each in _ALWAYS)]
    for file, content in {**function.files, f"{name}.py": "\n\n".join(body).encode()}.items():
        with open(os.path.join(folder, file), "wb") as target:
            target.write(content)
    return name, ""


def _signatures(estimator: Any, input_fn: InputFn) -> tuple[bool, dict[str, tuple[str, dict[str, str]]]]:
    """Returns whether the input_fn returns a dataset, and the export's signatures in the form of SIGNATURES."""
    export = tf.estimator.export
    with tf.Graph().as_default():
        tf.compat.v1.train.create_global_step()
        returned = estimator._call_input_fn(input_fn, ModeKeys.TRAIN)
        if not isinstance(returned, tf.data.Dataset):
            return False, {}
        features, _ = tf.compat.v1.data.make_initializable_iterator(returned).get_next()
        spec = estimator.model_fn(features, None, ModeKeys.PREDICT, estimator.config)
        found = {}
        for name, output in spec.export_outputs.items():
            if isinstance(output, export.ClassificationOutput):
                found[name] = "classify", _OF_CLASSES
            elif isinstance(output, export.RegressionOutput):
                key = "logistic" if "logistic" in spec.predictions else "predictions"
                found[name] = "regress", {"outputs": key}
            else:
                found[name] = "predict", {key: key for key in output.outputs}
    return True, found


def _table(signatures: Mapping[str, tuple[str, dict[str, str]]]) -> str:
    lines = []
    for name, (method, outputs) in signatures.items():
        inner = ", ".join(f"{literal(key)}: {literal(value)}" for key, value in outputs.items())
        lines.append(f"{literal(name)}: ({literal(method)}, {{{inner}}})")
    return indented([f"{{{', '.join(lines)}}}"], "")


def _answers(head: Head) -> list[str]:
    """Returns the source of answers() and metrics()."""
    if head.kind == REGRESSION:
        found = [inspect.getsource(run_fn_parts.answers_of_numbers).replace("answers_of_numbers", "answers")]
    else:
        count = 2 if head.kind == BINARY else head.units
        names = indented([f"NAMES = {literal(list(head.words) or [str(each) for each in range(count)])}"], "")
        found = [f"# The classes' names.\n{names}\n"]
        of_classes = inspect.getsource(run_fn_parts.answers_of_classes)
        if head.kind == BINARY:
            found.append(of_classes)
            found.append(inspect.getsource(run_fn_parts.answers_of_two).replace("answers_of_two", "answers"))
        elif head.kind == CLASSES:
            found.append(of_classes.replace("answers_of_classes", "answers"))
        else:
            found.append(inspect.getsource(run_fn_parts.answers_of_labels).replace("answers_of_labels", "answers"))
    lines = [f"return [{', '.join(_METRICS[head.kind])}]"]
    metrics = f'def metrics():\n    """Returns an evaluation\'s metrics other than the loss."""\n{indented(lines)}\n'
    return [*found, metrics]
