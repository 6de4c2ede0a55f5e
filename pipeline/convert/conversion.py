"""The conversion of an Estimator's training."""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
import tempfile
from collections.abc import Mapping
from typing import Any, Optional

from tfx.components.trainer.fn_args_utils import FnArgs

from tfx_estimator.components.trainer.declared_input import declared_input
from tfx_estimator.components.trainer.estimator.trainer_fn import trainer_fn
from tfx_estimator.components.trainer.keras.model import ModelMaker
from tfx_estimator.components.trainer.settings import KERAS, SETTINGS_KEY
from tfx_estimator.model_fn.bridge import proof as proofs
from tfx_estimator.model_fn.bridge import tensors
from tfx_estimator.model_fn.bridge.convert import KERAS2, KERAS3
from tfx_estimator.model_fn.bridge.examples import check
from tfx_estimator.model_fn.bridge.placing import Guide, unplaced
from tfx_estimator.model_fn.bridge.proof import Proof
from tfx_estimator.model_fn.bridge.written import MAPPING, drafted
from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.convert import keras2, new_declaration
from tfx_estimator.pipeline.convert.answers import run_estimator
from tfx_estimator.pipeline.convert.keras3 import handing
from tfx_estimator.pipeline.convert.replacement import Replacement, require
from tfx_estimator.pipeline.convert.source import Source, show_tensorflow_1

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
    """Writes the Keras model, the state to resume from, and the proof that it equals the Estimator."""
    show_tensorflow_1(source.settings)
    require(source.settings.section.model or "", replacement)
    old = source.settings.with_trainer(train_steps=source.last_step, train_epochs=None)
    settings = old if replacement is None else replacement.settings(old)
    if to == KERAS3:
        handing.refuse(settings)
    section, guide = settings.with_trainer(**_ALONE, path=KERAS).section, Guide(patterns or {})
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as scratch:
        fn_args = FnArgs(
            train_files=[os.path.join(source.uri("examples"), "Split-train", "*")],
            eval_files=source.eval_files,
            transform_output=source.uri("transform_graph"),
            model_run_dir=scratch,
            custom_config={SETTINGS_KEY: old.with_trainer(**_ALONE)},
        )
        read = functools.partial(declared_input, fn_args, section, lambda: source.step)
        declared = read()
        check(source.examples, declared.feature_spec)
        reader, found = tensors.read(source.checkpoint)
        maker = ModelMaker(section, len(source.settings.label_names), declared.inputs)
        steps = None if replacement is None else (source.step, source.last_step)
        if replacement is None:
            keras2.check(maker, found, guide)
        estimator = trainer_fn(fn_args, None)["estimator"]
        answers = run_estimator(estimator, source.checkpoint, reader, read, scratch, steps)
        if replacement is not None and (training := answers.training) is not None:
            settings = replacement.with_optimizer(settings, training)
            maker = dataclasses.replace(maker, section=settings.with_trainer(**_ALONE, path=KERAS).section)
            found = tensors.classify(found, training.slots, training.hyperparameters)
        guide = dataclasses.replace(guide, trained=answers.trained.trained, others=answers.trained.others)
        with drafted(output) as draft:
            given = (found, guide, answers, source.model)
            if to == KERAS3:
                result, placed = handing.write(draft, settings, *given, source.checkpoint, source.step)
            else:
                result, placed = keras2.write(draft, maker, *given, reader, source.step)
                checkpoints = os.path.join(os.path.abspath(output), keras2.CHECKPOINTS)
                new_declaration.write(draft, old, settings, checkpoints, source.step)
            entries = [each.to_dict() for each in (*placed, *unplaced(found, guide))]
            mapping = {"checkpoint": source.checkpoint, "step": source.step, "tensors": entries}
            write_json(os.path.join(draft, MAPPING), mapping)
            counts = dict(collections.Counter(each.tensor.kind for each in placed))
            proof = Proof(**result, served=sorted(answers.served), compared=answers.compared, tensors=counts)
            todo = (
                "compare the options of the named tensors' layers, such as the rate of dropout or the momentum of a "
                "normalisation; declare what a model_fn does to loss and gradients, such as label_smoothing or "
                "clip_norm, in the file of --declaration; or use the network and the module of the run"
            )
            proofs.require(proof, draft, todo)
    return proof
