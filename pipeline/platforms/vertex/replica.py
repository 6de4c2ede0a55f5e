"""One replica of a custom job: finds its place in the cluster, and trains.

python -m tfx_estimator.pipeline.platforms.vertex.replica --call gs://… --roles chief,worker,evaluator
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Optional

from tfx_estimator.components.trainer.cluster.tf_config import CHIEF, VARIABLE, resolve
from tfx_estimator.pipeline.base.ending import leaving, signals
from tfx_estimator.pipeline.base.installed import uncollected

# Set by Vertex AI. Its TF_CONFIG is not used, because it calls the third pool parameter servers, whatever that is.
CLUSTER_SPEC = "CLUSTER_SPEC"


def main(argv: Sequence[str]) -> int:
    """Trains as one replica; the chief writes down what was measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--call", required=True)
    parser.add_argument("--roles", required=True)
    args = parser.parse_args(argv)
    if text := tf_config(os.environ, args.roles.split(",")):
        os.environ[VARIABLE] = text
    from tfx_estimator.components.trainer.task import light_imports

    with uncollected():
        light_imports.apply()
        from tfx_estimator.components.trainer.executor import Executor
        from tfx_estimator.pipeline.platforms.vertex.call import read_call, told, write_measured

    place = resolve(os.environ)
    with told(args.call, place.task.name if place else f"{CHIEF}-0"), signals.handled():
        inputs, outputs, properties = read_call(args.call)
        Executor().Do(dict(inputs), dict(outputs), properties)
    # Only the replica that publishes, the chief, has measurements.
    if any(artifact.mlmd_artifact.custom_properties for artifact in outputs["model_run"]):
        write_measured(args.call, outputs)
    return 0


def tf_config(environment: Mapping[str, str], roles: Sequence[str]) -> Optional[str]:
    """Makes a TF_CONFIG of Vertex AI's CLUSTER_SPEC.

    Args:
        roles: Of each pool.

    Returns:
        The variable's value; None where there is no CLUSTER_SPEC.
    """
    if not (text := environment.get(CLUSTER_SPEC)):
        return None
    told = json.loads(text)
    named = {f"workerpool{number}": role for number, role in enumerate(roles)}
    cluster = {named[pool]: addresses for pool, addresses in told["cluster"].items() if addresses}
    task = {"type": named[told["task"]["type"]], "index": int(told["task"]["index"])}
    return json.dumps({"cluster": cluster, "task": task})


if __name__ == "__main__":
    sys.exit(leaving.exit_code(lambda: main(sys.argv[1:])))
