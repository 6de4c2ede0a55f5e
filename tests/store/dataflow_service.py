"""The part of Dataflow's service that keeps jobs, for processes of these tests; its job never completes.

Runs behind the store's front:

    python dataflow_service.py PORT LOG SECONDS [STATE]

Prints a line when it listens. LOG gets a line for each event; SECONDS is the delay of the response to a creation; a
job is in STATE at the first request for it, JOB_STATE_RUNNING by default. A cancelled job ends two requests
later.
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ID = "2026-11-23_00_00_00-1"


class Service(BaseHTTPRequestHandler):
    """Handles one request; the server shares the class attributes."""

    protocol_version = "HTTP/1.1"
    log, seconds, then = Path(), 0.0, "JOB_STATE_RUNNING"
    job: dict[str, Any] = {}
    ending = 0

    def do_POST(self) -> None:
        job = self._body()
        self._note("asked to create a job")
        time.sleep(self.seconds)
        Service.job = {**{key: job.get(key) for key in ("name", "clientRequestId")}, "id": ID}
        self._note("created")
        self._respond({**self.job, "currentState": "JOB_STATE_PENDING"})

    def do_GET(self) -> None:
        if "/messages" in self.path:
            message = {"id": "1", "time": "2026-11-23T00:00:00Z", "messageText": "no such bucket"}
            failed = "FAILED" in self.then
            self._respond({"jobMessages": [{**message, "messageImportance": "JOB_MESSAGE_ERROR"}]} if failed else {})
            return
        state = self.then
        if self.ending:
            state = "JOB_STATE_CANCELLING" if self.ending < 3 else "JOB_STATE_CANCELLED"
            Service.ending += 1
        self._note(state)
        self._respond({**self.job, "currentState": state})

    def do_PUT(self) -> None:
        wanted = self._body()["requestedState"]
        self._note(f"wanted {wanted}")
        Service.ending = 1
        self._respond({**self.job, "requestedState": wanted})

    def log_message(self, *args: object) -> None:
        """Logs nothing."""

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _note(self, what: str) -> None:
        with self.log.open("a") as file:
            file.write(f"{what}\n")

    def _respond(self, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response_only(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    Service.log, Service.seconds = Path(sys.argv[2]), float(sys.argv[3])
    Service.then = sys.argv[4] if len(sys.argv) > 4 else Service.then
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Service)
    print("listening", flush=True)
    server.serve_forever()
