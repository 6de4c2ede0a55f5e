"""Trains in its own process, for tests that end the supervisor: `python -m tests.faults.train JOB`."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(path: str) -> int:
    from tfx_estimator.components.trainer.task import light_imports

    # Like a replica of a custom job.
    light_imports.apply()
    from tfx.types import artifact_utils

    from tests.components.trainer.conftest import Training
    from tfx_estimator.components.trainer.settings import Settings
    from tfx_estimator.pipeline.base.errors import TfxEstimatorError

    job = json.loads(Path(path).read_text())
    training = Training(Path(job["root"]), artifact_utils.parse_artifact_dict(job["inputs"]))
    training.executions = job["executions"]
    try:
        _, model_run = training.run(Settings.from_dict(job["settings"]))
    except TfxEstimatorError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    names = ("first_step", "last_step", "restarts", "eval_accuracy")
    print(json.dumps({name: model_run.get_float_custom_property(name) for name in names}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
