"""The command of a training job's pods: trains as a task of a cluster that a Trainer elsewhere has prepared.

python -m tfx_estimator.pipeline.platforms.training_jobs.pod /mnt/work/…/logs/job.json
"""

from __future__ import annotations

import json
import os
import sys

from absl import logging as absl_logging

from tfx_estimator.components.trainer.job import Job
from tfx_estimator.pipeline.base.ending import leaving, scratch, signals
from tfx_estimator.pipeline.base.errors import PipelineError, TfxEstimatorError, to_json
from tfx_estimator.pipeline.base.installed import uncollected

MODULE = "tfx_estimator.pipeline.platforms.training_jobs.pod"
# Folder of the user's own modules, in the training folder.
MODULES = "modules"
# Kubernetes' termination message: its file and maximum size.
_MESSAGE = os.environ.get("TFX_ESTIMATOR_TERMINATION_LOG", "/dev/termination-log")
_MOST_BYTES = 4096
# Less than _MOST_BYTES, because JSON adds keys and escapes.
_MOST_OF_TEXT = 2500


def command(job_path: str) -> list[str]:
    """Returns a pod's command.

    Args:
        job_path: The job's file; its folder takes the tasks' files.
    """
    return ["python", "-m", MODULE, job_path]


def main(job_path: str) -> int:
    """Trains; returns the exit code.

    Args:
        job_path: As of `command`.
    """
    # Progress goes to the pod's log.
    absl_logging.set_verbosity(absl_logging.INFO)
    return leaving.exit_code(lambda: _run(job_path))


def _run(job_path: str) -> None:
    try:
        with signals.handled(), scratch.used():
            _train(job_path)
    except TfxEstimatorError as error:
        _write_message(error)
        raise


def _train(job_path: str) -> None:
    logs = os.path.dirname(job_path)
    if not os.path.exists(job_path):
        raise PipelineError(
            f"{job_path} does not exist: this pod does not see the folder that the training was started from",
            expected="a volume that holds the work folder, mounted at the same path there and here",
            todo="see deploy.volumes",
        )
    job = Job.load(job_path)
    modules = os.path.join(job.training_dir, MODULES)
    if os.path.isdir(modules):
        sys.path.insert(0, modules)
    from tfx_estimator.components.trainer.task import light_imports

    with uncollected():
        light_imports.apply()
        # Imported after the change of sys.path, which tasks inherit.
        from tfx_estimator.components.trainer.jobs import supervise

    supervise(job, logs)


def _write_message(error: TfxEstimatorError) -> None:
    """Writes the termination message, which `failures.PodFailure` parses."""
    fields = {
        **to_json(error),
        "what": error.what[-_MOST_OF_TEXT:],
        "expected": error.expected[:300],
        "todo": error.todo[:300],
    }
    data = json.dumps(fields).encode()
    if len(data) > _MOST_BYTES:
        data = json.dumps({**fields, "what": error.what[: _MOST_OF_TEXT // 8], "expected": "", "todo": ""}).encode()
    try:
        with open(_MESSAGE, "wb") as file:
            file.write(data)
    except OSError:
        # Not in a container; the error is on stderr as well.
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
