"""How far a component's Beam pipeline has read, as progress of a run on this machine."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from apache_beam.metrics import monitoring_infos
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner.worker_handlers import EmbeddedWorkerHandler

from tfx_estimator.pipeline.base.log import get_logger

_SECONDS = 1.0

logger = get_logger("beam")

_push = EmbeddedWorkerHandler.push


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Logs how far Beam's in-memory runner is: its own thread asks only once a stage has ended."""

    def push_and_count(self: Any, request: Any) -> Any:
        if not request.HasField("process_bundle"):
            return _push(self, request)
        over = threading.Event()
        counter = threading.Thread(target=_count, args=(self.worker, request.instruction_id, over), daemon=True)
        try:
            counter.start()
            return _push(self, request)
        finally:
            over.set()

    EmbeddedWorkerHandler.push = push_and_count
    try:
        yield
    finally:
        # Not what it was before: of two runs at once in a process, none may leave its own.
        EmbeddedWorkerHandler.push = _push


def _count(worker: Any, stage: str, over: threading.Event) -> None:
    """Logs, once a second, the most elements that a step of a stage has put out."""
    asked = beam_fn_api_pb2.ProcessBundleProgressRequest(instruction_id=stage)
    while not over.wait(_SECONDS):
        # Such as RuntimeError, for a counter that is added meanwhile: progress must not disturb the run.
        with contextlib.suppress(Exception):
            found = worker.process_bundle_progress(asked, stage).process_bundle_progress.monitoring_infos
            counts = [each for each in found if each.urn == monitoring_infos.ELEMENT_COUNT_URN]
            if counts:
                logger.info("%s elements", f"{max(map(monitoring_infos.extract_counter_value, counts)):,}")
