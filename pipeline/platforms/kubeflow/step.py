"""The entry point of a step of Kubeflow Pipelines 2, in place of TFX's own, whose arguments it takes.

TFX 1.15 expects the input of Vertex AI. Kubeflow Pipelines 2 omits the types of input artifacts
(https://github.com/tensorflow/tfx/issues/7768), adds an output for the container's log, and downloads every input of a
step before it starts: it takes the objects that mark folders in a bucket for files
(https://github.com/kubeflow/pipelines/issues/13476).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from typing import Any

import tensorflow as tf
from absl import app
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_run_executor
from tfx.orchestration.kubeflow.v2.file_based_example_gen import driver

from tfx_estimator.pipeline.base.ending import leaving
from tfx_estimator.pipeline.base.environment import check_release
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.runners.entry import DRIVER


def for_tfx(executor_input: str, component: str) -> str:
    """Converts a step's ExecutorInput of Kubeflow Pipelines 2 to the one that TFX expects.

    Args:
        component: JSON of the inputs of the step's component; empty if it has none.

    Returns:
        The ExecutorInput, with input types as the component declares them, because the service gives none or its own
        titles; and without the output that the service adds, the container's log.
    """
    whole = json.loads(executor_input)
    declared = json.loads(component or "{}").get("artifacts", {})
    for key, listed in whole.get("inputs", {}).get("artifacts", {}).items():
        for artifact in listed.get("artifacts", ()):
            if key in declared:
                artifact["type"] = declared[key]["artifactType"]
    values = whole.get("inputs", {}).get("parameterValues", {})
    # TFX has text for all values that are no numbers, for example the pipeline's final status of its exit handler.
    values.update((key, json.dumps(value)) for key, value in values.items() if isinstance(value, (dict, list)))
    outputs = whole.setdefault("outputs", {})
    # TFX compiles each declared type to a schema; the log has none.
    outputs["artifacts"] = {
        key: listed
        for key, listed in outputs.get("artifacts", {}).items()
        if all("instanceSchema" in artifact.get("type", {}) for artifact in listed.get("artifacts", ()))
    }
    return json.dumps(whole)


def remove_markers(folder: str) -> None:
    """Removes the objects by which TensorFlow marks folders in a bucket: their names end in `/`.

    A folder with contents exists without its marker.

    Args:
        folder: Address of a step's output.

    Raises:
        PipelineError: They cannot be removed.
    """
    try:
        _remove_markers(f"{folder.rstrip('/')}/")
    except tf.errors.OpError as error:
        raise PipelineError(
            f"the objects that mark folders cannot be removed from {folder}: {error.message}",
            expected="an account that may list and delete objects there: else the next step cannot download the rest",
            todo="give it a role such as Storage Object User; then run the pipeline again",
        ) from error


def _remove_markers(folder: str) -> None:
    if not tf.io.gfile.isdir(folder):
        return
    for name in tf.io.gfile.listdir(folder):
        if name.endswith("/"):
            _remove_markers(f"{folder}{name}")
    # Not every folder has a marker.
    with contextlib.suppress(tf.errors.NotFoundError):
        tf.io.gfile.remove(folder)


def parse(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parses the command line.

    Returns:
        The arguments as TFX's own entry point parses them, with the input of `for_tfx`; and those of Beam.
    """
    args, rest = kubeflow_v2_run_executor._parse_flags([word for word in argv if word != DRIVER])
    args.is_driven = DRIVER in argv
    executor_input, component = args.json_serialized_invocation_args, args.json_serialized_inputs_spec_args
    args.json_serialized_invocation_args = for_tfx(executor_input, component)
    return args, rest


def main(parsed: tuple[argparse.Namespace, list[str]]) -> None:
    """Runs the step's executor as TFX does; exits with the error's code if it fails with a TfxEstimatorError.

    Args:
        parsed: As of `parse`.
    """
    if code := leaving.exit_code(lambda: _run(parsed)):
        sys.exit(code)


def _run(parsed: tuple[argparse.Namespace, list[str]]) -> None:
    check_release()
    # Imported late: the package checks the release on import, which would end in a traceback in place of the error.
    from tfx_estimator.components.baseline_finder import records
    from tfx_estimator.components.trainer import launching
    from tfx_estimator.pipeline.config.paths import is_address

    executor_input: dict[str, Any] = json.loads(parsed[0].json_serialized_invocation_args)
    outputs = executor_input["outputs"]
    if parsed[0].is_driven:
        driver.main(parsed[0])
        with open(outputs["outputFile"], encoding="utf-8") as file:
            driven = json.load(file)["artifacts"]
        for key, listed in outputs["artifacts"].items():
            listed["artifacts"][0]["metadata"] = driven[key]["artifacts"][0]["metadata"]
    records.give_baseline(executor_input)
    launching.launcher = _train_in_pods
    parsed[0].json_serialized_invocation_args = json.dumps(executor_input)
    kubeflow_v2_run_executor.main(parsed)
    records.keep_blessed(executor_input)
    for listed in outputs["artifacts"].values():
        for artifact in listed.get("artifacts", ()):
            if is_address(artifact["uri"]):
                remove_markers(artifact["uri"])


def _train_in_pods(job: Any, settings: Any, logs: str) -> Any:
    """Trains in a TrainJob, if that is declared; see `launching`."""
    if not ((settings.declaration or {}).get("deploy") or {}).get("trainjob", {}).get("train"):
        return None
    from tfx_estimator.pipeline.platforms.training_jobs import launcher

    return launcher.train(job, settings, logs)


if __name__ == "__main__":
    app.run(main, flags_parser=parse)
