"""Where the processes of somebody else's cluster meet that all run one declaration: a file in their work folder.

The chief runs the pipeline, and says there that it does; the others wait for its training, and take their place in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import RETRYABLE, SIGNALLED, TfxEstimatorError
from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.folders import PipelineFolders

RUNNING, ENDED, FAILED = "running", "ended", "failed"
# The run failed, and its exit code asks for another start.
AGAIN = "again"
_BEAT_SECONDS = 2.0
_FOLDER = "clusters"


class Rendezvous:
    """The file of one cluster.

    Args:
        folders: Where the pipeline keeps its things; the same folder for every task.
        tasks: Names and addresses of the cluster's tasks, which tell it from others.
    """

    def __init__(self, folders: PipelineFolders, tasks: Any) -> None:
        key = hashlib.sha256(json.dumps(tasks, sort_keys=True, default=list).encode()).hexdigest()[:16]
        self._path = os.path.join(folders.local, _FOLDER, f"{key}.json")

    @contextlib.contextmanager
    def led(self) -> Iterator[None]:
        """Says, as long as the context lasts, that the chief runs; and afterwards how it ended."""
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        self._write(RUNNING, 0.0)
        # Takes the time from the file system's clock, because it is compared with the times of other tasks' files.
        self._write(RUNNING, os.path.getmtime(self._path))
        over = threading.Event()
        thread = threading.Thread(target=self._beat, args=(over,), name="rendezvous", daemon=True)
        thread.start()
        state = FAILED
        try:
            yield
            state = ENDED
        except TfxEstimatorError as error:
            # Whatever restarts tasks after some exit codes also does so after a signal.
            if RETRYABLE in os.environ and (error.retryable or error.exit_code > SIGNALLED):
                state = AGAIN
            raise
        finally:
            over.set()
            thread.join()
            self._write(state, 0.0)

    def read(self) -> Optional[dict[str, Any]]:
        """Returns what the chief says: `state`, `begun` (a file's time), and a `beat` that changes; or None."""
        try:
            with open(self._path, encoding="utf-8") as file:
                return {**json.load(file), "beat": os.fstat(file.fileno()).st_mtime_ns}
        except (FileNotFoundError, ValueError):
            return None

    def _beat(self, over: threading.Event) -> None:
        while not over.wait(_BEAT_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(self._path)

    def _write(self, state: str, begun: float) -> None:
        write_json(self._path, {"state": state, "begun": begun})
