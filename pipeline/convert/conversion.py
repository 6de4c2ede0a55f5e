"""The conversion of an Estimator's training."""

from __future__ import annotations

import collections
import dataclasses
import gc
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any, Optional

import numpy as np
from tfx.components.trainer.fn_args_utils import FnArgs

from tfx_estimator.components.trainer.declared_input import declared_input
from tfx_estimator.components.trainer.estimator.trainer_fn import trainer_fn
from tfx_estimator.components.trainer.keras.model import ModelMaker
from tfx_estimator.components.trainer.keras.saving import Saver, restore_weights
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, TaskSpec
from tfx_estimator.components.trainer.settings import KERAS, SETTINGS_KEY
from tfx_estimator.model_fn.bridge import tensors
from tfx_estimator.model_fn.bridge.arrays import write_arrays
from tfx_estimator.model_fn.bridge.examples import check
from tfx_estimator.model_fn.bridge.proof import Proof, not_equal
from tfx_estimator.model_fn.bridge.written import MAPPING, PROOF, WEIGHTS, drafted
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
from tfx_estimator.model_fn.step.precision import FLOAT32, use
from tfx_estimator.model_fn.user_models.warm_start import finalize
from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.convert import new_declaration
from tfx_estimator.pipeline.convert.guide import Guide
from tfx_estimator.pipeline.convert.keras3.handing import refuse, to_keras3
from tfx_estimator.pipeline.convert.placing import Placed, Places, fill, place, unplaced
from tfx_estimator.pipeline.convert.proof import compare_answers, compare_steps, run_estimator
from tfx_estimator.pipeline.convert.replacement import Replacement, require
from tfx_estimator.pipeline.convert.source import Source

KERAS2, KERAS3 = "keras2", "keras3"
CHECKPOINTS = "checkpoints"
# One device, whole batches at once. The declared values change speed, and no result except that of a normalisation, by
# each replica's part of a batch; here both sides normalise whole batches.
_ALONE: dict[str, Any] = {
    "distribution": {},
    "gradient_accumulation": 1,
    "parallel_parts": 1,
    "model_parallel": None,
    "pipeline_parallel": None,
    "sync_every": None,
    "xla": False,
}


def convert(
    source: Source,
    output: str,
    to: str = KERAS2,
    replacement: Optional[Replacement] = None,
    patterns: Optional[Mapping[str, Optional[str]]] = None,
) -> Proof:
    """Writes the Keras model, the state to resume from, and the proof that it equals the Estimator.

    Args:
        output: The folder to create; it appears only when complete and proved.
        to: Keras 2, with a checkpoint of our Keras paths and a declaration; or Keras 3, with source that resumes.
        replacement: The network that replaces a whole model_fn.
        patterns: The places of weights by regular expressions of their names: see `guide.read_map`.

    Raises:
        DataError: The `--examples` differ in kind from the run's.
        UserCodeError: The checkpoint does not match the network, or Keras 3 cannot build it.
        NotEqualError: The two differ.
    """
    require(source.settings.section.model or "", replacement)
    old = source.settings.with_trainer(train_steps=source.last_step, train_epochs=None)
    settings = old if replacement is None else replacement.settings(old)
    if to == KERAS3:
        refuse(settings)
    section, guide = settings.with_trainer(**_ALONE, path=KERAS).section, Guide(patterns or {})
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as scratch:
        fn_args = FnArgs(
            train_files=[os.path.join(source.uri("examples"), "Split-train", "*")],
            eval_files=source.eval_files,
            transform_output=source.uri("transform_graph"),
            model_run_dir=scratch,
            custom_config={SETTINGS_KEY: old.with_trainer(**_ALONE)},
        )
        declared = declared_input(fn_args, section, lambda: source.step)
        check(source.examples, declared.feature_spec)
        reader, found = tensors.read(source.checkpoint)
        maker = ModelMaker(section, len(source.settings.label_names), declared.transformed_spec)
        steps = None if replacement is None else (source.step, source.last_step)
        if replacement is None:
            # Before the Estimator runs, whose error would name only one mismatching tensor.
            place(found, Places(maker.make_compiled(steps_per_execution=1)), guide)
            gc.collect()  # Keras models are reference cycles; memory may hold only one large model.
        estimator = trainer_fn(fn_args, None)["estimator"]
        answers = run_estimator(estimator, source.checkpoint, reader, declared, scratch, steps)
        if replacement is not None and (training := answers.training) is not None:
            settings = replacement.with_optimizer(settings, training)
            maker = dataclasses.replace(maker, section=settings.with_trainer(**_ALONE, path=KERAS).section)
            found = tensors.classify(found, training.slots, training.hyperparameters)
            guide = dataclasses.replace(guide, trained=training.trained, others=training.others)
        # A new model: the Estimator's graph has broken the first.
        model = maker.make_compiled(steps_per_execution=1)
        assert isinstance(model, KerasClassifier)
        placed, rest = place(found, Places(model), guide), unplaced(found, guide)
        fill(placed, reader)
        with drafted(output) as draft:
            checkpoint = _write(draft, model, placed, rest, source, answers.served)
            proof = compare_answers(answers, _evaluated(maker, model), declared, source.model)
            gc.collect()
            use(maker.section.precision, trains=True)
            restore_weights(model, checkpoint)
            proof = compare_steps(proof, answers, model, placed, reader)
            if to == KERAS3 and proof.holds:
                proof, in_keras3 = to_keras3(draft, model, placed, answers, settings, source.step, proof, reader)
                _write_mapping(draft, placed, rest, source, in_keras3)
                shutil.rmtree(os.path.join(draft, CHECKPOINTS))
            elif to == KERAS2:
                checkpoints = os.path.join(os.path.abspath(output), CHECKPOINTS)
                new_declaration.write(draft, old, settings, checkpoints, source.step)
            proof = dataclasses.replace(proof, tensors=dict(collections.Counter(each.tensor.kind for each in placed)))
            write_json(os.path.join(draft, PROOF), proof.to_dict())
            if not proof.holds:
                raise not_equal(
                    proof,
                    "compare the options of the named tensors' layers, such as the rate of dropout or the momentum of "
                    "a normalisation; declare what a model_fn does to loss and gradients, such as label_smoothing or "
                    "clip_norm, in the file of --declaration; or use the network and the module of the run",
                )
    return proof


def _evaluated(maker: ModelMaker, model: KerasClassifier) -> KerasClassifier:
    """Returns the model in float32, as for evaluation and serving."""
    if maker.section.precision != FLOAT32:
        weights, model = model.network.get_weights(), dataclasses.replace(maker, trains=False).make()
        model.network.set_weights(weights)
    finalize(model)
    return model


def _write(
    folder: str,
    model: KerasClassifier,
    placed: list[Placed],
    rest: list[dict[str, Any]],
    source: Source,
    served: Mapping[str, np.ndarray],
) -> str:
    """Writes the files, gives the model the weights that the Estimator serves, and returns the checkpoint."""
    write_arrays(os.path.join(folder, WEIGHTS), ((each.place, each.variable.numpy()) for each in placed))
    _write_mapping(folder, placed, rest, source, {})
    Saver(model, os.path.join(folder, CHECKPOINTS), 1, TaskSpec(CHIEF, 0, 1)).save(source.step)
    for each in placed:
        if each.tensor.name in served:
            each.variable.assign(served[each.tensor.name])
    model.network.save(os.path.join(folder, "model.keras"))
    return os.path.join(folder, CHECKPOINTS, f"model.ckpt-{source.step}")


def _write_mapping(
    folder: str,
    placed: list[Placed],
    rest: list[dict[str, Any]],
    source: Source,
    in_keras3: Mapping[str, tuple[str, str]],
) -> None:
    """Writes mapping.json.

    Args:
        rest: The entries of tensors without a place.
        in_keras3: Place and rule in Keras 3, by the place in Keras 2; empty for Keras 2.
    """
    entries = [each.to_dict() for each in placed]
    for entry in entries if in_keras3 else ():
        entry["place"], entry["rule"] = in_keras3[entry["place"]]
    mapping = {"checkpoint": source.checkpoint, "step": source.step, "tensors": [*entries, *rest]}
    with open(os.path.join(folder, MAPPING), "w", encoding="utf-8") as file:
        json.dump(mapping, file, indent=2)
