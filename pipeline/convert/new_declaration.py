"""The declaration that resumes a converted training."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tfx_estimator.components.trainer.settings import ESTIMATOR, KERAS, Settings
from tfx_estimator.model_fn.user_models.keras_model import CLASS_IDS, CLASSES, LOGITS, PROBABILITIES
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.section import Section
from tfx_estimator.pipeline.config.yaml_text import leaves, render
from tfx_estimator.pipeline.user_source.fingerprint import follow_imports

FILE = "new.yaml"
_SERVED = (LOGITS, PROBABILITIES, CLASS_IDS, CLASSES)


def write(folder: str, old: Settings, new: Settings, checkpoints: str, step: int) -> None:
    """Writes the run's declaration, changed to resume in Keras, with a comment at each change of meaning."""
    assert new.declaration is not None
    was, trainer = old.section, dict(new.declaration["trainer"])
    trainer["path"] = KERAS
    trainer["warm_start"] = {"checkpoint": checkpoints, "resume": True}
    values = {**new.declaration, "trainer": trainer}
    remarks = {
        "trainer.path": f"was {ESTIMATOR}",
        "trainer.train_steps": f"all steps, of which {step} are done",
    }
    if values.get("tune"):
        # Trials begin at step 0; the tuned values are already set.
        values["tune"] = None
    if (key := (values.get("evaluator") or {}).get("prediction_key")) not in (None, *_SERVED):
        values["evaluator"] = {**values["evaluator"], "prediction_key": PROBABILITIES}
        remarks["evaluator.prediction_key"] = f"was {key}, which the Keras model does not return"
    declaration = Declaration.parse_obj(values)
    section = declaration.trainer
    if section.model != was.model:
        remarks["trainer.model"] = f"was {was.model}, a whole model_fn"
        remarks |= {f"trainer.optimizer.{name}": "from the model_fn's graph" for name in section.optimizer.__fields__}
    if section.optimizer.ends_with_training:
        remarks["trainer.train_steps"] += ", and the end of the schedule"
    if section.distribution.train.asynchronous:
        remarks["trainer.distribution.train.workers"] = "TensorFlow 2's parameter servers: see docs/strategies.md"
    # Even if equal to its default, which may change in the next release.
    written = {**_written(declaration), "name": declaration.name}
    written["trainer"] = {"path": KERAS, "model": section.model, **written["trainer"]}
    shown = {path: text for path, text in remarks.items() if tuple(path.split(".")) in dict(leaves(written))}
    with open(os.path.join(folder, FILE), "w", encoding="utf-8") as file:
        file.write(
            f"# Resumes with Keras from step {step}. Modules are found next to this file, and in the working folder.\n"
        )
        file.write(render({"name": written.pop("name"), **written}, shown))


def copy_modules(folder: str, targets: Iterable[str], home: str) -> None:
    """Copies the user's modules next to the declaration, so that it runs from any folder."""
    for module, data in follow_imports(list(targets), [home]):
        if module.file is not None and Path(home) in module.file.parents:
            copy = Path(folder) / module.file.relative_to(home)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(data)


def _written(section: Section) -> dict[str, Any]:
    """Returns the plain values that are not the defaults."""
    plain, found = section.dict(), {}
    for name, key in section.__fields__.items():
        value = getattr(section, name)
        if key.required or value != key.default:
            found[name] = _written(value) if isinstance(value, Section) else plain[name]
    return found
