"""tfx-estimator: declarative, distributed TFX pipelines for tf.estimator code.

    from tfx_estimator import PipelineFolders, create_pipeline, load_declaration

    loaded = load_declaration("digits")
    pipeline = create_pipeline(loaded, PipelineFolders("runs", loaded.declaration.name))

A declaration, and the pipeline that it becomes:

    load_declaration    Reads and checks a preset or a YAML file.
    Loaded              Its result: the declaration, the origin of each value, notes and warnings.
    Declaration         The values: what to ingest, train, evaluate and push.
    DataSection         Its section `data`, which TfdsExampleGen also takes.
    PipelineFolders     Folders of a pipeline's artifacts, metadata and logs.
    create_pipeline     Makes the pipeline, for any TFX runner.

Verbs of the command line as functions, for a script or a notebook:

    run                 Runs a declared pipeline on this machine.
    RunResult           Its result: metrics, the model, the state of each component and why it ran.
    compare             Compares declarations, trained on the same examples, or finished runs.
    CompareResult       Its result.
    bench               Measures distribution strategies.
    BenchResult         Its result.
    predict             Predicts the classes of images with a run's model or any SavedModel.
    PredictResult       The predictions.
    validate            Checks a declaration, optionally with its code.
    Checked             Its result: the declaration, notes and warnings.

Components, for any TFX pipeline:

    TfdsExampleGen      Writes the examples of a data set of labelled images.
    Tuner               Tries hyperparameters in whole, supervised trainings.
    Trainer             Replaces TFX's: trains in supervised, fresh processes, on one device or a cluster.
    Settings            Deadlines of these two.
    Pusher              Replaces TFX's: pushes a version atomically.

A runner, for any TFX pipeline:

    KubeflowV2Runner    Replaces TFX's KubeflowV2DagRunner: compiles for Kubeflow Pipelines 2.

For code that uses `tf.estimator`, without a pipeline:

    bring_back_estimator    Sets `tf.estimator` on a TensorFlow without it.
    convert                 Writes an Estimator's training as one of Keras, with a proof.

Errors, each with the cause, the place, what was expected and what to do next:

    TfxEstimatorError   Base class.
    DeclarationError    A declaration, an override or an argument is wrong.
    DataError           The data set is not available or is invalid; its subclasses:
    DataNotFoundError       there is no such data set, folder, split or version,
    DamagedDataError        files are truncated, corrupt or contradictory,
    DataValidationError     ExampleValidator found anomalies.
    UserCodeError       A model_fn or a module file violates its contract.
    TrainingError       A training failed; its subclasses:
    TaskFailedError         a task ended with an error,
    TaskStalledError        a task did not start, or made no progress, before its deadline,
    NotStartedError         its machines or pods did not start, for want of an image, a quota or a node,
    ExportError             training ended without a whole SavedModel,
    StoppedError            a signal ended it at a checkpoint.
    PipelineError       A component failed for another reason.
    NotBlessedError     The model was not blessed, which was required.
    NotEqualError       Accuracies, or a converted model's answers, differ by more than was allowed.
    UnfollowedError     A job on a service is no longer followed, and may still run.

The names are imported when they are first used: `import tfx_estimator` itself imports no other package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tfx_estimator.pipeline.base.s3.registration import register_with_tensorflow
from tfx_estimator.pipeline.base.stack.stacks import choose_keras

if TYPE_CHECKING:
    from tfx_estimator.components.pusher import Pusher
    from tfx_estimator.components.tfds_example_gen import TfdsExampleGen
    from tfx_estimator.components.trainer import Trainer
    from tfx_estimator.components.trainer.settings import Settings
    from tfx_estimator.components.tuner import Tuner
    from tfx_estimator.model_fn.bridge.convert import convert
    from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
    from tfx_estimator.pipeline.base.errors import (
        DamagedDataError,
        DataError,
        DataNotFoundError,
        DataValidationError,
        DeclarationError,
        ExportError,
        NotBlessedError,
        NotEqualError,
        NotStartedError,
        PipelineError,
        StoppedError,
        TaskFailedError,
        TaskStalledError,
        TfxEstimatorError,
        TrainingError,
        UnfollowedError,
        UserCodeError,
    )
    from tfx_estimator.pipeline.build import create_pipeline
    from tfx_estimator.pipeline.config import Declaration, Loaded
    from tfx_estimator.pipeline.config.data import DataSection
    from tfx_estimator.pipeline.config.load import load as load_declaration
    from tfx_estimator.pipeline.folders import PipelineFolders
    from tfx_estimator.pipeline.platforms.kubeflow.runner import KubeflowV2Runner
    from tfx_estimator.pipeline.python.functions import bench, compare, predict, run, validate
    from tfx_estimator.pipeline.python.results import BenchResult, Checked, CompareResult, PredictResult, RunResult

__version__ = "0.2.0"

__all__ = [
    "BenchResult",
    "Checked",
    "CompareResult",
    "DamagedDataError",
    "DataError",
    "DataNotFoundError",
    "DataSection",
    "DataValidationError",
    "Declaration",
    "DeclarationError",
    "ExportError",
    "KubeflowV2Runner",
    "Loaded",
    "NotBlessedError",
    "NotEqualError",
    "NotStartedError",
    "PipelineError",
    "PipelineFolders",
    "PredictResult",
    "Pusher",
    "RunResult",
    "Settings",
    "StoppedError",
    "TaskFailedError",
    "TaskStalledError",
    "TfdsExampleGen",
    "TfxEstimatorError",
    "Trainer",
    "TrainingError",
    "Tuner",
    "UnfollowedError",
    "UserCodeError",
    "__version__",
    "bench",
    "bring_back_estimator",
    "compare",
    "convert",
    "create_pipeline",
    "load_declaration",
    "predict",
    "run",
    "validate",
]

# Public name -> module, and name there.
_PLACES = {
    "DataSection": ("pipeline.config.data", "DataSection"),
    "Declaration": ("pipeline.config", "Declaration"),
    "KubeflowV2Runner": ("pipeline.platforms.kubeflow.runner", "KubeflowV2Runner"),
    "Loaded": ("pipeline.config", "Loaded"),
    "Settings": ("components.trainer.settings", "Settings"),
    "PipelineFolders": ("pipeline.folders", "PipelineFolders"),
    "Pusher": ("components.pusher", "Pusher"),
    "TfdsExampleGen": ("components.tfds_example_gen", "TfdsExampleGen"),
    "Trainer": ("components.trainer", "Trainer"),
    "Tuner": ("components.tuner", "Tuner"),
    "bring_back_estimator": ("model_fn.bridge.estimator", "bring_back_estimator"),
    "convert": ("model_fn.bridge.convert", "convert"),
    "create_pipeline": ("pipeline.build", "create_pipeline"),
    "load_declaration": ("pipeline.config", "load"),
    **{name: ("pipeline.python.functions", name) for name in ("bench", "compare", "predict", "run", "validate")},
    **{
        name: ("pipeline.python.results", name)
        for name in ("BenchResult", "Checked", "CompareResult", "PredictResult", "RunResult")
    },
    **{name: ("pipeline.base.errors", name) for name in __all__ if name.endswith("Error")},
}


choose_keras()
register_with_tensorflow()


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    value = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
