"""Starts Beam's workers on a machine of a cluster: `python -m tfx_estimator.pipeline.worker_pool --service_port=50000`.

Beam's own pool finds a worker by an id that each task manager and executor counts for itself: with two of them on a
machine, the first to end would stop the other's worker.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from apache_beam.runners.worker import worker_pool_main


class WorkerPool(worker_pool_main.BeamFnExternalWorkerPoolServicer):
    """Beam's pool, whose workers end with the task manager that asked for them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._starting = threading.Lock()

    def StartWorker(self, start_worker_request: Any, unused_context: Any) -> Any:  # noqa: N802
        """Starts a worker under a name that no StopWorker finds."""
        name = start_worker_request.worker_id
        with self._starting:
            response = super().StartWorker(start_worker_request, unused_context)
            if process := self._worker_processes.pop(name, None):
                self._worker_processes[f"{start_worker_request.control_endpoint.url} {name}"] = process
                # Beam's pool never reads what workers print: more than a pipe holds would stop one.
                output = (process.stdout, sys.stdout.buffer)
                threading.Thread(target=shutil.copyfileobj, args=output, daemon=True).start()
        return response


def main() -> None:
    """Serves until SIGTERM or SIGINT, which end the workers, too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Beam starts `python`.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    worker_pool_main.BeamFnExternalWorkerPoolServicer = WorkerPool
    worker_pool_main.main(sys.argv[1:])


if __name__ == "__main__":
    main()
