"""The part of Kubeflow Pipelines' HTTP APIs, of both versions, that runs pipelines, on a port of this machine."""

from __future__ import annotations

import http.server
import json
import re
import threading
import urllib.parse
from typing import Any

TOKEN = "a-token-of-the-tests"
_PATH = re.compile(r"(?P<prefix>.*)/apis/(?P<version>v\dbeta1)/runs(?:/(?P<id>[^/:]+)(?P<verb>[:/]terminate)?)?")


class KubeflowService:
    """Keeps runs as Kubeflow Pipelines does; what they come to the test says.

    Args:
        states: What a run comes to, one an answer; the last stays. A number is a code of HTTP in place of an answer.
        prefix: Of every path.
    """

    def __init__(self, states: list[Any], prefix: str = "") -> None:
        self.states, self.prefix = list(states), prefix
        self.runs: dict[str, dict[str, Any]] = {}
        self.terminated: list[str] = []

    def __enter__(self) -> KubeflowService:
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(*service.answer("GET", self.path, self.headers, None))

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self._answer(*service.answer("POST", self.path, self.headers, json.loads(text or b"null")))

            def _answer(self, code: int, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("localhost", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://localhost:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, address: str, headers: Any, body: Any) -> tuple[int, Any]:
        """Returns the code of HTTP, and what is said."""
        path, _, query = address.partition("?")
        if not (match := _PATH.fullmatch(path)) or match["prefix"] != self.prefix:
            return 404, {"message": f"there is no {path}"}
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"message": "who are you"}
        first, name = match["version"] == "v1beta1", match["id"]
        if method == "POST" and name is None:
            number = f"run-{len(self.runs) + 1}"
            self.runs[number] = {**body, "id" if first else "run_id": number}
            return 200, {"run": self.runs[number]} if first else self.runs[number]
        if method == "POST":
            assert match["verb"] == ("/terminate" if first else ":terminate")
            self.terminated.append(name)
            self.states = ["Failed" if first else "CANCELED"]
            return 200, {}
        if name is None:
            (predicate,) = json.loads(urllib.parse.parse_qs(query)["filter"][0])["predicates"]
            key, value = ("name", "string_value") if first else ("display_name", "stringValue")
            assert predicate == {"op" if first else "operation": "EQUALS", "key": key, value: predicate[value]}
            found = [run for run in self.runs.values() if run[key] == predicate[value]]
            return 200, {"runs": [{**run, "status" if first else "state": self.states[0]} for run in found]}
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, int):
            return state, {"message": "not now"}
        if name not in self.runs:
            return 404, {"message": f"there is no run {name}"}
        return 200, (_first if first else _second)(self.runs[name], state)


def _first(run: dict[str, Any], state: str) -> dict[str, Any]:
    """As Kubeflow Pipelines 1 tells of a run: with the Workflow, as Argo has changed it."""
    failed = state == "Failed"
    nodes = {
        "digits": {"type": "DAG", "displayName": "digits", "phase": state},
        "a": {"type": "Pod", "displayName": "statisticsgen", "phase": "Succeeded"},
        "b": {"type": "Pod", "displayName": "trainer(0)", "phase": state, "message": "exit code 5" if failed else ""},
    }
    workflow = {**json.loads(run["pipeline_spec"]["workflow_manifest"]), "status": {"nodes": nodes}}
    return {"run": {**run, "status": state}, "pipeline_runtime": {"workflow_manifest": json.dumps(workflow)}}


def _second(run: dict[str, Any], state: str) -> dict[str, Any]:
    error = {"error": {"code": 9, "message": "exit code 5"}} if state == "FAILED" else {}
    details = [
        {"display_name": "root", "state": state, "child_tasks": [{"task_id": "1"}]},
        {"display_name": "StatisticsGen", "state": "SUCCEEDED"},
        {"display_name": "Trainer", "state": state, **error},
    ]
    return {**run, "state": state, "run_details": {"task_details": details}, **error}
