"""One replica of a custom job: finds its task in the cluster, and trains.

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

# Set by Vertex AI. Its TF_CONFIG is not used, because there the third pool is always parameter servers.
CLUSTER_SPEC = "CLUSTER_SPEC"


def main(argv: Sequence[str]) -> int:
    """Trains as one replica; the chief writes the results."""
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
        from tfx_estimator.pipeline.platforms.vertex.call import read_call, reported, write_measured

    place = resolve(os.environ)
    with reported(args.call, place.task.name if place else f"{CHIEF}-0"), signals.handled():
        inputs, outputs, properties = read_call(args.call)
        Executor().Do(dict(inputs), dict(outputs), properties)
    # Only the chief has measurements.
    if any(artifact.mlmd_artifact.custom_properties for artifact in outputs["model_run"]):
        write_measured(args.call, outputs)
    return 0


def tf_config(environment: Mapping[str, str], roles: Sequence[str]) -> Optional[str]:
    """Converts Vertex AI's CLUSTER_SPEC to a TF_CONFIG.

    Args:
        roles: Of each pool.

    Returns:
        The variable's value; None without a CLUSTER_SPEC.
    """
    if not (text := environment.get(CLUSTER_SPEC)):
        return None
    spec = json.loads(text)
    named = {f"workerpool{number}": role for number, role in enumerate(roles)}
    cluster = {named[pool]: addresses for pool, addresses in spec["cluster"].items() if addresses}
    task = {"type": named[spec["task"]["type"]], "index": int(spec["task"]["index"])}
    return json.dumps({"cluster": cluster, "task": task})


if __name__ == "__main__":
    sys.exit(leaving.exit_code(lambda: main(sys.argv[1:])))
