"""The declaration by which a converted training goes on."""

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
    """Writes the declaration of a run as that of one that goes on, with a comment at each change of meaning.

    Args:
        folder: Where the file is to be.
        old: As the run was trained.
        new: The same with the network and the optimizer of the Keras model.
        checkpoints: What it goes on from, as an absolute path.
    """
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
        # Trials begin at step 0; what they found is in the values.
        values["tune"] = None
    if (key := (values.get("evaluator") or {}).get("prediction_key")) not in (None, *_SERVED):
        values["evaluator"] = {**values["evaluator"], "prediction_key": PROBABILITIES}
        remarks["evaluator.prediction_key"] = f"was {key}, which the Keras model does not answer"
    declaration = Declaration.parse_obj(values)
    section = declaration.trainer
    if section.model != was.model:
        remarks["trainer.model"] = f"was {was.model}, a whole model_fn"
        remarks |= {f"trainer.optimizer.{name}": "of the model_fn's graph" for name in section.optimizer.__fields__}
    if section.optimizer.ends_with_training:
        remarks["trainer.train_steps"] += ", and the end of the schedule"
    if section.distribution.train.asynchronous:
        remarks["trainer.distribution.train.workers"] = "TensorFlow 2's parameter servers: see docs/strategies.md"
    # Beside its default, whatever that is in the next release.
    written = {**_written(declaration), "name": declaration.name}
    written["trainer"] = {"path": KERAS, "model": section.model, **written["trainer"]}
    shown = {path: text for path, text in remarks.items() if tuple(path.split(".")) in dict(leaves(written))}
    with open(os.path.join(folder, FILE), "w", encoding="utf-8") as file:
        file.write(
            f"# Goes on with Keras from step {step}. Modules are looked for beside this file, and where it is run.\n"
        )
        file.write(render({"name": written.pop("name"), **written}, shown))


def bring_modules(folder: str, targets: Iterable[str], home: str) -> None:
    """Copies the user's modules of a folder beside the declaration, which may be run from anywhere then.

    Args:
        targets: `package.module:function`, or what a built-in one is called.
        home: The folder that they lie in.
    """
    for module, data in follow_imports(list(targets), [home]):
        if module.file is not None and Path(home) in module.file.parents:
            copy = Path(folder) / module.file.relative_to(home)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(data)


def _written(section: Section) -> dict[str, Any]:
    """The plain values that are not the defaults."""
    plain, found = section.dict(), {}
    for name, key in section.__fields__.items():
        value = getattr(section, name)
        if key.required or value != key.default:
            found[name] = _written(value) if isinstance(value, Section) else plain[name]
    return found
