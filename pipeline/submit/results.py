"""What a job came to that ran elsewhere: the table that `run` and `execute` end with."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping

from tfx_estimator.pipeline.run.executed_artifacts import add_readable_outputs
from tfx_estimator.pipeline.run.printing import make_console
from tfx_estimator.pipeline.run.summary import Summary, Warned
from tfx_estimator.pipeline.run.table import print_table
from tfx_estimator.pipeline.run.terminal import quiet
from tfx_estimator.pipeline.runners.listener import NodeRun
from tfx_estimator.pipeline.services.follow import Look

# The service's word for a step -> ours.
_STATES: Mapping[str, str] = {"SUCCEEDED": "ran", "SKIPPED": "cached"}

# Whose outputs the table tells of.
_TOLD = frozenset({"TfdsExampleGen", "Tuner", "Trainer", "Evaluator", "Pusher"})


def show_results(look: Look, job: str, address: str) -> None:
    """Prints what a job came to.

    Args:
        look: The last one; without outputs of a step of ours nothing is printed.
        address: Where its logs are seen.
    """
    if not _TOLD & look.outputs.keys():
        return
    results = Summary(job, job)
    results.components = [
        NodeRun(task, _STATES.get(state, "resolved"), 0.0, None)
        for task, state in look.tasks.items()
        if task in look.outputs
    ]
    # Hides what TensorFlow prints when it is loaded.
    with tempfile.TemporaryDirectory() as folder, quiet(os.path.join(folder, "log")) as terminal:
        wrong = add_readable_outputs(results, look.outputs)
        results.warnings += [Warned("", line) for line in wrong]
        results.seconds = look.seconds
        # A reader that has gone is no reason to fail.
        with contextlib.suppress(BrokenPipeError):
            print_table(make_console(terminal), results, address, asynchronous=False)
