"""A half-finished training of an Estimator on digits, for conversions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.components.trainer.conftest import LABELS, SHAPE

HALF, END = 12, 24
NETWORKS = "converted_networks"
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"name": "sgd", "learning_rate": 0.05},
    "momentum": {"name": "momentum", "learning_rate": 0.02, "schedule": "cosine", "nesterov": False},
    "adam": {"name": "adam", "learning_rate": 0.002, "schedule": "cosine", "warmup_steps": 3},
    "rmsprop": {"name": "rmsprop", "learning_rate": 0.001, "centered": True, "momentum": 0.5},
    "adagrad": {"name": "adagrad", "learning_rate": 0.02},
    "ftrl": {"name": "ftrl", "learning_rate": 0.05},
}


class Half:
    """A training of an Estimator, at half of its steps.

    Args:
        folder: The folder of its checkpoints.
        inputs: The Trainer's artifacts.
        declared: The declaration, as in Settings.
    """

    def __init__(self, folder: Path, inputs: dict[str, list[Any]], declared: dict[str, Any]) -> None:
        from tfx.components.trainer.fn_args_utils import FnArgs

        from tfx_estimator.components.trainer.estimator.trainer_fn import trainer_fn
        from tfx_estimator.components.trainer.settings import SETTINGS_KEY, Settings

        self.folder = folder
        self.settings = Settings(declaration=declared, image_shape=SHAPE, label_names=LABELS, path="estimator")
        self.inputs = inputs
        uris = {name: artifacts[0].uri for name, artifacts in inputs.items()}
        self._args = FnArgs(
            train_files=[f"{uris['examples']}/Split-train/*"],
            eval_files=[f"{uris['examples']}/Split-eval/*"],
            transform_output=uris["transform_graph"],
            model_run_dir=str(folder),
            custom_config={SETTINGS_KEY: self.settings},
        )
        self._trainer_fn = trainer_fn
        self.train(HALF)

    def train(self, steps: int) -> dict[str, np.ndarray]:
        """Continues training, and returns the tensors of the last checkpoint."""
        spec = self._trainer_fn(self._args, None)
        spec["estimator"].train(spec["train_spec"].input_fn, max_steps=steps)
        reader = tf.train.load_checkpoint(str(self.folder))
        return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}

    def source(self, network: str = "", step: int = HALF) -> Any:
        """Returns the Source that `convert` would find, with another network if one is named."""
        from tfx_estimator.pipeline.convert.source import Source

        settings = self.settings.with_trainer(model=f"{NETWORKS}:{network}") if network else self.settings
        checkpoint = str(self.folder / f"model.ckpt-{step}")
        return Source(None, checkpoint, step, settings, self.inputs, "")  # type: ignore[arg-type]

    def batches(self, at: int) -> tf.data.Dataset:
        """Returns the run's training batches from a step on."""
        from tfx_estimator.components.trainer.declared_input import declared_input

        return declared_input(self._args, self.settings.section, lambda: at).reader.input_fn("train")

    def keras(self, folder: Path, at: int, more: int = 0, declared: Any = None) -> dict[str, np.ndarray]:
        """Restores a checkpoint of the Keras path, continues training by its step and input, and returns all values.

        Args:
            declared: The section `trainer` of a new.yaml, if not the Estimator's on the Keras path.
        """
        from tfx_estimator.components.trainer.declared_input import declared_input
        from tfx_estimator.components.trainer.keras.model import ModelMaker
        from tfx_estimator.components.trainer.keras.saving import Saver
        from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, TaskSpec
        from tfx_estimator.pipeline.convert.keras2 import Model

        section = declared or self.settings.with_trainer(path="keras").section
        reads = declared_input(self._args, section, lambda: at)
        model = ModelMaker(section, len(LABELS), reads.inputs).make_compiled(1)
        assert Saver(model, str(folder), 1, TaskSpec(CHIEF, 0, 1)).restore() == at
        train_step = tf.function(model.train_step)
        for batch in reads.reader.input_fn("train").take(more):
            train_step(batch)
        found = Model(model)
        step = found.places.step
        return {name: each.numpy() for name, each in found.variables.items() if name != step}
