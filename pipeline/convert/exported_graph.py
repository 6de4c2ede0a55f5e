"""The graph that a run exported, or a SavedModel, as a layer that Keras trains."""

from __future__ import annotations

import os
from pathlib import Path

from tfx_estimator.model_fn.bridge.examples import files_of
from tfx_estimator.model_fn.bridge.graph import conversion, proof
from tfx_estimator.pipeline.base.errors import DeclarationError, PipelineError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.warm_start import WarmStart


def keep(named: str, output: str, examples: str = "", answer: str = "") -> proof.Kept:
    """Keeps the graph of a SavedModel, of the newest of its versions, or of a run; see `graph.conversion`."""
    folder, of_run = _find(named)
    if not (examples or of_run):
        raise DeclarationError(
            f"{one_line(named)} is a SavedModel alone, without evaluation examples",
            expected="TFRecord files of tf.Examples, on which to compare its outputs",
            todo="name them by --examples",
        )
    return conversion.keep(folder, files_of(examples or of_run), output, answer)


def _find(named: str) -> tuple[str, str]:
    """Finds the SavedModel, and the folder of the run's evaluation examples; empty without a run."""
    path = os.path.abspath(os.path.expanduser(named))
    if folder := _saved_model(path):
        return folder, ""
    # A SavedModel needs no TFX.
    from tfx.types import artifact_utils, standard_component_specs

    from tfx_estimator.pipeline.convert.source import last_training
    from tfx_estimator.pipeline.report.source import find_runs

    try:
        run = find_runs([named])[0]
    except DeclarationError as error:
        raise DeclarationError(
            error.what, expected=f"a SavedModel, a folder of its versions, or {error.expected}", todo=error.todo
        ) from error
    _, inputs, outputs = last_training(run)
    if not (folder := _saved_model(outputs.get(standard_component_specs.MODEL_KEY, ""))):
        raise PipelineError(
            f"the training of {run.name} has no model",
            expected="a finished training with an export",
            todo="run it to the end; or name the SavedModel itself",
        )
    examples = artifact_utils.get_single_uri(inputs[standard_component_specs.EXAMPLES_KEY])
    return folder, os.path.join(examples, "Split-eval")


def _saved_model(path: str) -> str:
    prefix = WarmStart(model=path).source if path else ""
    return str(Path(prefix).parents[1]) if prefix else ""
