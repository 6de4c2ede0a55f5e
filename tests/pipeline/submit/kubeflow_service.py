"""The part of Kubeflow Pipelines' HTTP APIs, of both versions, that runs pipelines, on a port of this machine."""

from __future__ import annotations

import http.server
import json
import re
import threading
import urllib.parse
from typing import Any, Optional

TOKEN = "a-token-of-the-tests"
_PATH = re.compile(r"(?P<prefix>.*)/apis/(?P<version>v\dbeta1)/runs(?:/(?P<id>[^/:]+)(?P<verb>[:/]terminate)?)?")


class KubeflowService:
    """Keeps runs as Kubeflow Pipelines does; what they come to the test says.

    Args:
        states: What a run comes to, one an answer; the last stays. A number is a code of HTTP in place of an answer.
        prefix: Of every path.
        explains: Whether a step that failed says why, as version 2's API allows, and no version yet does.
        failing: The step that fails.
    """

    def __init__(self, states: list[Any], prefix: str = "", explains: bool = False, failing: str = "Trainer") -> None:
        self.states, self.prefix, self.explains, self.failing = list(states), prefix, explains, failing
        # Of a Workflow of version 1, in place of its own; how many runs are told at once.
        self.nodes: dict[str, Any] = {}
        self.page = 2
        # What whoever stands before the service answers to a token that he does not know; None if nobody does.
        self.login: Optional[int] = None
        # He answers so to everybody; and where he says that the service is.
        self.is_away, self.moved_to = False, ""
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
                page = isinstance(body, str)
                data = body.encode() if page else json.dumps(body).encode()
                self.send_response(code)
                if code == http.HTTPStatus.FOUND:
                    there = (
                        f"{service.moved_to}{self.path}" if service.moved_to else f"{service.address}/dex/auth?state=1"
                    )
                    self.send_header("Location", there)
                self.send_header("Content-Type", "text/html; charset=utf-8" if page else "application/json")
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
        if self.login and (self.is_away or headers.get("Authorization") != f"Bearer {TOKEN}"):
            return 200 if path == "/dex/auth" else self.login, "<html>Log in to Your Account</html>"
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
            asked = urllib.parse.parse_qs(query)
            (predicate,) = json.loads(asked["filter"][0])["predicates"]
            key, value = ("name", "string_value") if first else ("display_name", "stringValue")
            assert predicate == {"op" if first else "operation": "IS_SUBSTRING", "key": key, value: predicate[value]}
            found = [run for run in self.runs.values() if predicate[value] in run[key]]
            begin = int(asked.get("page_token", ["0"])[0])
            more = {"next_page_token": str(begin + self.page)} if len(found) > begin + self.page else {}
            told = [{**run, "status" if first else "state": self.states[0]} for run in found[begin:][: self.page]]
            return 200, {"runs": told, **more} if told else {}
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, int):
            return state, {"message": "not now"}
        if name not in self.runs:
            return 404, {"message": f"there is no run {name}"}
        if first:
            return 200, _first(self.runs[name], state, self.nodes)
        return 200, _second(self.runs[name], state, self.failing, self.explains)


def _first(run: dict[str, Any], state: str, others: dict[str, Any]) -> dict[str, Any]:
    """As Kubeflow Pipelines 1 tells of a run: with the Workflow, as Argo has changed it."""
    failed = state == "Failed"
    nodes = {
        "digits": {"type": "DAG", "displayName": "digits", "phase": state},
        "a": {"type": "Pod", "displayName": "statisticsgen", "phase": "Succeeded"},
        "b": {"type": "Pod", "displayName": "trainer(0)", "phase": state, "message": "exit code 5" if failed else ""},
    }
    workflow = {**json.loads(run["pipeline_spec"]["workflow_manifest"]), "status": {"nodes": others or nodes}}
    return {"run": {**run, "status": state}, "pipeline_runtime": {"workflow_manifest": json.dumps(workflow)}}


def _second(run: dict[str, Any], state: str, failing: str, explains: bool) -> dict[str, Any]:
    """As Kubeflow Pipelines 2 does: a step is a DAG with one pod in it, beside its driver.

    Source: https://github.com/kubeflow/pipelines/blob/2.0.5/backend/src/v2/compiler/argocompiler/dag.go.
    """
    error = {"error": {"code": 9, "message": "exit code 5"}} if state == "FAILED" and explains else {}

    def detail(name: str, state: str, *children: str, **more: Any) -> dict[str, Any]:
        told = {"run_id": run["run_id"], "task_id": f"id-of-{name}", "display_name": name, "state": state, **more}
        return {**told, "child_tasks": [{"pod_name": f"pod-{child}"} for child in children]} if children else told

    details = [
        detail("digits-4kx2p", state, "root-driver", "root"),
        detail("root-driver", "SUCCEEDED"),
        detail("root", state, "StatisticsGen-driver", "StatisticsGen", f"{failing}-driver", failing),
        detail("StatisticsGen-driver", "SUCCEEDED"),
        detail("StatisticsGen", "SUCCEEDED", "executor"),
        detail("executor", "SUCCEEDED"),
        detail(f"{failing}-driver", "SUCCEEDED"),
        detail(failing, state, "executor", **error),
        detail("executor", state),
        # What could not be converted.
        {"run_id": run["run_id"], "task_id": "7", "error": {"code": 13, "message": "Failed to convert a task"}},
    ]
    return {**run, "state": state, "run_details": {"task_details": details}, **error}
