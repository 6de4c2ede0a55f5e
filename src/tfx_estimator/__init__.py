"""tfx-estimator: declarative, distributed TFX pipelines for tf.estimator code.

    from tfx_estimator import PipelineFolders, create_pipeline, load_declaration

    loaded = load_declaration("digits")
    pipeline = create_pipeline(loaded, PipelineFolders("runs", loaded.declaration.name))

A declaration, and the pipeline that it becomes:

    load_declaration    Reads a preset or a YAML file, and checks all of it.
    Loaded              What it returns: the declaration, where each value came from, notes and warnings.
    Declaration         The values: what to ingest, train, evaluate and push.
    DataSection         Its section `data`, which TfdsExampleGen takes too.
    PipelineFolders     Where a pipeline keeps what it makes.
    create_pipeline     Makes the pipeline, for any runner of TFX.

Verbs of the command line as functions, for a script or a notebook:

    run                 Runs a declared pipeline on this machine.
    RunResult           What it came to: metrics, the model, how each component went and why.
    compare             Trains declarations on the same examples, or takes finished runs, and compares them.
    CompareResult       What it found.
    bench               Measures which distribution strategy pays.
    BenchResult         What it found.
    predict             Predicts the classes of images, by a run or by any SavedModel.
    PredictResult       What the model says of each.
    validate            Checks a declaration; with its code, if it is to.
    Checked             What it returns: the declaration, and what there is to remark.

Components, for a pipeline of anybody's:

    TfdsExampleGen      Writes the examples of a data set of labelled images.
    Tuner               Tries values in whole, supervised trainings.
    Trainer             In the place of TFX's: trains in supervised, fresh processes, on one device or a cluster.
    Settings            Deadlines of these two.
    Pusher              In the place of TFX's: a version is at its destination whole, or not at all.

A runner, for a pipeline of anybody's:

    KubeflowV2Runner    In the place of TFX's KubeflowV2DagRunner: compiles for Kubeflow Pipelines 2.

For code that says `tf.estimator`, without any pipeline:

    bring_back_estimator    Sets `tf.estimator` on a TensorFlow that has it no more.

Errors, each with what was wrong, where, what was expected and what to do next:

    TfxEstimatorError   The root of all.
    DeclarationError    A declaration, an override or an argument is wrong.
    DataError           The data set cannot be had, or is not what it should be; and of these
    DataNotFoundError       there is no such data set, folder, split or version,
    DamagedDataError        files are truncated, corrupt or contradictory,
    DataValidationError     ExampleValidator found anomalies.
    UserCodeError       A model_fn or a module file does not keep its contract.
    TrainingError       A training failed; and of these
    TaskFailedError         a task ended with an error of its own,
    TaskStalledError        a task did not start, or made no progress, before its deadline,
    ExportError             training ended without a whole SavedModel,
    StoppedError            a signal ended it at a checkpoint.
    PipelineError       A component failed for another reason.
    NotBlessedError     The model was not blessed, where it had to be.
    NotEqualError       Accuracies, or a converted model's answers, differ by more than was allowed.

The names load what they need when they are first used: `import tfx_estimator` itself imports no other package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tfx_estimator.pipeline.base.stack.stacks import choose_keras

if TYPE_CHECKING:
    from tfx_estimator.components.pusher import Pusher
    from tfx_estimator.components.tfds_example_gen import TfdsExampleGen
    from tfx_estimator.components.trainer import Trainer
    from tfx_estimator.components.trainer.settings import Settings
    from tfx_estimator.components.tuner import Tuner
    from tfx_estimator.pipeline.base.errors import (
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
    from tfx_estimator.pipeline.base.stack.estimator import bring_back_estimator
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
    "UserCodeError",
    "__version__",
    "bench",
    "bring_back_estimator",
    "compare",
    "create_pipeline",
    "load_declaration",
    "predict",
    "run",
    "validate",
]

# Public name -> where it is, and what it is called there.
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
    "bring_back_estimator": ("pipeline.base.stack.estimator", "bring_back_estimator"),
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


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    value = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
