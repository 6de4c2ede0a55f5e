"""What a step of Kubeflow Pipelines 2 runs in place of TFX's own entry, whose arguments it takes.

TFX 1.15 expects what Vertex AI hands over. Kubeflow Pipelines 2 tells it of no input what type it has
(https://github.com/tensorflow/tfx/issues/7768), adds an output for the log of the container, and downloads every input
of a step before that starts: it takes the objects that stand for folders in a bucket for files
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


def for_tfx(told: str, component: str) -> str:
    """Makes what Kubeflow Pipelines 2 tells a step what TFX expects.

    Args:
        component: The inputs of the step's component, likewise; empty if it has none.

    Returns:
        The ExecutorInput. Its inputs are of the types that the component declares: what the service says of artifacts
        is nothing, or a title of its own. Of its outputs those are left that the component declares, and not what
        the service adds for itself: the container's log.
    """
    whole = json.loads(told)
    declared = json.loads(component or "{}").get("artifacts", {})
    for key, listed in whole.get("inputs", {}).get("artifacts", {}).items():
        for artifact in listed.get("artifacts", ()):
            if key in declared:
                artifact["type"] = declared[key]["artifactType"]
    values = whole.get("inputs", {}).get("parameterValues", {})
    # TFX has text for whatever is no number: how the pipeline ended, for its exit handler.
    values.update((key, json.dumps(value)) for key, value in values.items() if isinstance(value, (dict, list)))
    outputs = whole.setdefault("outputs", {})
    # TFX compiles each type to a schema.
    outputs["artifacts"] = {
        key: listed
        for key, listed in outputs.get("artifacts", {}).items()
        if all("instanceSchema" in artifact.get("type", {}) for artifact in listed.get("artifacts", ()))
    }
    return json.dumps(whole)


def remove_markers(folder: str) -> None:
    """Removes the objects that TensorFlow's client of a bucket makes of folders: their names end in `/`.

    A folder that holds something is one without them.

    Args:
        folder: Address of what a step has written.

    Raises:
        PipelineError: They cannot be removed.
    """
    try:
        _remove_markers(f"{folder.rstrip('/')}/")
    except tf.errors.OpError as error:
        raise PipelineError(
            f"the objects that stand for folders cannot be removed from {folder}: {error.message}",
            expected="an account that may list and delete objects there: the next step could not download the others",
            todo="give it a role as Storage Object User; then run the pipeline again",
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
        What TFX's own entry makes of it, but for what `for_tfx` changes; and the arguments of Beam.
    """
    args, rest = kubeflow_v2_run_executor._parse_flags([word for word in argv if word != DRIVER])
    args.is_driven = DRIVER in argv
    told, component = args.json_serialized_invocation_args, args.json_serialized_inputs_spec_args
    args.json_serialized_invocation_args = for_tfx(told, component)
    return args, rest


def main(parsed: tuple[argparse.Namespace, list[str]]) -> None:
    """Runs the step's executor as TFX does; ends the process where it fails by an error of this project's.

    Args:
        parsed: As of `parse`.
    """
    if code := leaving.exit_code(lambda: _run(parsed)):
        sys.exit(code)


def _run(parsed: tuple[argparse.Namespace, list[str]]) -> None:
    check_release()
    # Imported late: the package checks the release when it is imported, and would end with a traceback before this step
    # has said why.
    from tfx_estimator.components.baseline_finder import records
    from tfx_estimator.pipeline.config.paths import is_address

    told: dict[str, Any] = json.loads(parsed[0].json_serialized_invocation_args)
    outputs = told["outputs"]
    if parsed[0].is_driven:
        driver.main(parsed[0])
        with open(outputs["outputFile"], encoding="utf-8") as file:
            driven = json.load(file)["artifacts"]
        for key, listed in outputs["artifacts"].items():
            listed["artifacts"][0]["metadata"] = driven[key]["artifacts"][0]["metadata"]
    records.give_baseline(told)
    parsed[0].json_serialized_invocation_args = json.dumps(told)
    kubeflow_v2_run_executor.main(parsed)
    records.keep_blessed(told)
    for listed in outputs["artifacts"].values():
        for artifact in listed.get("artifacts", ()):
            if is_address(artifact["uri"]):
                remove_markers(artifact["uri"])


if __name__ == "__main__":
    app.run(main, flags_parser=parse)
