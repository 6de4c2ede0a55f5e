"""A worker process of the multi-process engine."""

from __future__ import annotations

import os
from typing import Any

from apache_beam.runners.worker import sdk_worker_main

from tfx_estimator.pipeline.beam import worker_errors
from tfx_estimator.pipeline.ending import keeper


def main(parent: int) -> None:
    """Works until nothing is left to do. Errors are told as they are, before Beam makes text of them.

    Args:
        parent: Process that this one ends with.
    """
    keeper.die_with(parent)
    _, harness, _ = sdk_worker_main.create_harness(os.environ)
    execute = harness._execute

    def telling(task: Any, request: Any) -> None:
        def tried() -> Any:
            try:
                return task()
            except BaseException as error:
                worker_errors.write(error)
                raise

        execute(tried, request)

    harness._execute = telling
    harness.run()
