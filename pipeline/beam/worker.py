"""A worker process of the multi-process engine."""

from __future__ import annotations

from typing import Any

from apache_beam.runners.worker import sdk_worker, sdk_worker_main

from tfx_estimator.pipeline.beam import told
from tfx_estimator.pipeline.ending import keeper


class _Harness(sdk_worker.SdkHarness):
    """Beam's, which tells its errors as they are before it makes text of them."""

    def _execute(self, task: Any, request: Any) -> None:
        def telling() -> Any:
            try:
                return task()
            except BaseException as error:
                told.write(error)
                raise

        super()._execute(telling, request)


def main(parent: int) -> None:
    """Works until nothing is left to do.

    Args:
        parent: Process that this one ends with.
    """
    keeper.die_with(parent)
    sdk_worker_main.SdkHarness = _Harness
    sdk_worker_main.main([])
