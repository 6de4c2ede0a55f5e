"""tfx-estimator: declarative, distributed TFX pipelines for tf.estimator code.

    from tfx_estimator import Trainer, load_declaration, create_pipeline

The names load what they need when they are first used: `import tfx_estimator` itself imports no other package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfx_estimator.components.pusher import Pusher
    from tfx_estimator.components.tfds_example_gen import TfdsExampleGen
    from tfx_estimator.components.trainer import Trainer
    from tfx_estimator.components.trainer.settings import Settings
    from tfx_estimator.components.tuner import Tuner
    from tfx_estimator.pipeline.build import create_pipeline
    from tfx_estimator.pipeline.config import Declaration, Loaded
    from tfx_estimator.pipeline.config.data import DataSection
    from tfx_estimator.pipeline.config.load import load as load_declaration
    from tfx_estimator.pipeline.errors import (
        DamagedDataError,
        DataError,
        DataNotFoundError,
        DataValidationError,
        DeclarationError,
        ExportError,
        NotBlessedError,
        NotEqualError,
        PipelineError,
        StoppedError,
        TaskFailedError,
        TaskStalledError,
        TfxEstimatorError,
        TrainingError,
        UserCodeError,
    )
    from tfx_estimator.pipeline.folders import PipelineFolders

__version__ = "0.2.0"

_ERRORS = (
    "DamagedDataError",
    "DataError",
    "DataNotFoundError",
    "DataValidationError",
    "DeclarationError",
    "ExportError",
    "NotBlessedError",
    "NotEqualError",
    "PipelineError",
    "StoppedError",
    "TaskFailedError",
    "TaskStalledError",
    "TfxEstimatorError",
    "TrainingError",
    "UserCodeError",
)
# Public name -> where it is, and what it is called there.
_PLACES = {
    "DataSection": ("pipeline.config.data", "DataSection"),
    "Declaration": ("pipeline.config", "Declaration"),
    "Loaded": ("pipeline.config", "Loaded"),
    "Settings": ("components.trainer.settings", "Settings"),
    "PipelineFolders": ("pipeline.folders", "PipelineFolders"),
    "Pusher": ("components.pusher", "Pusher"),
    "TfdsExampleGen": ("components.tfds_example_gen", "TfdsExampleGen"),
    "Trainer": ("components.trainer", "Trainer"),
    "Tuner": ("components.tuner", "Tuner"),
    "create_pipeline": ("pipeline.build", "create_pipeline"),
    "load_declaration": ("pipeline.config", "load"),
    **{name: ("pipeline.errors", name) for name in _ERRORS},
}

__all__ = [
    "DamagedDataError",
    "DataError",
    "DataNotFoundError",
    "DataSection",
    "DataValidationError",
    "Declaration",
    "DeclarationError",
    "ExportError",
    "Loaded",
    "NotBlessedError",
    "NotEqualError",
    "PipelineError",
    "PipelineFolders",
    "Pusher",
    "Settings",
    "StoppedError",
    "TaskFailedError",
    "TaskStalledError",
    "TfdsExampleGen",
    "TfxEstimatorError",
    "Trainer",
    "TrainingError",
    "Tuner",
    "UserCodeError",
    "__version__",
    "create_pipeline",
    "load_declaration",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    value = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
