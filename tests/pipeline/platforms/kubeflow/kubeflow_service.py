"""The part of Kubeflow Pipelines' HTTP API that runs pipelines, on a port of this machine."""

from __future__ import annotations

import http
import json
import re
import urllib.parse
from typing import Any, Optional

from tests.http_service import Request, Service

TOKEN = "a-token-of-the-tests"
_PATH = re.compile(r"(?P<prefix>.*)/apis/v2beta1/(?P<kind>runs|experiments)(?:/(?P<id>[^/:]+)(?P<verb>:terminate)?)?")


class KubeflowService(Service):
    """Keeps runs as Kubeflow Pipelines does; the test sets their states.

    Args:
        states: States of a run, one per response; the last one stays. A number is an HTTP status in place of one.
        explains: Whether a failed step has a reason, as the API allows but no version does so far.
        failing: The step that fails.
        profile: The namespace of the token's user if the service is multi-user; else empty.
    """

    def __init__(
        self, states: list[Any], prefix: str = "", explains: bool = False, failing: str = "Trainer", profile: str = ""
    ) -> None:
        self.states, self.prefix, self.explains, self.failing = list(states), prefix, explains, failing
        # The number of runs per page.
        self.page = 2
        # The HTTP status with which a proxy answers an unknown token; None without a proxy.
        self.login: Optional[int] = None
        self.profile = profile
        self.runs: dict[str, dict[str, Any]] = {}
        self.experiments: dict[str, dict[str, Any]] = {}
        self.terminated: list[str] = []

    def respond(self, request: Request) -> None:
        body = json.loads(request.body() or b"null")
        code, answer = self.answer(request.command, request.path, request.headers, body)
        login = {"Location": f"{self.address}/dex/auth?state=1"} if code == http.HTTPStatus.FOUND else {}
        if isinstance(answer, str):
            request.answer(code, answer.encode(), "text/html; charset=utf-8", **login)
        else:
            request.answer(code, answer)

    def answer(self, method: str, address: str, headers: Any, body: Any) -> tuple[int, Any]:
        """Returns the HTTP status and the body."""
        path, _, query = address.partition("?")
        if self.login and headers.get("Authorization") != f"Bearer {TOKEN}":
            return 200 if path == "/dex/auth" else self.login, "<html>Log in to Your Account</html>"
        if not (match := _PATH.fullmatch(path)) or match["prefix"] != self.prefix:
            return 404, {"message": f"there is no {path}"}
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"message": "who are you"}
        name, parameters = match["id"], {key: value[0] for key, value in urllib.parse.parse_qs(query).items()}
        if name is None and (refused := self._refuse(match["kind"], parameters if body is None else body)):
            return refused
        if match["kind"] == "experiments":
            return self._experiments(parameters, body)
        if method == "POST" and name is None:
            number = f"run-{len(self.runs) + 1}"
            self.runs[number] = {**body, "run_id": number}
            return 200, self.runs[number]
        if method == "POST":
            assert match["verb"]
            self.terminated.append(name)
            self.states = ["CANCELED"]
            return 200, {}
        if name is None:
            value, experiment = _wanted(parameters, "IS_SUBSTRING"), parameters.get("experiment_id")
            found = [
                run
                for run in self.runs.values()
                if value in run["display_name"] and experiment in (None, run.get("experiment_id"))
            ]
            begin = int(parameters.get("page_token", "0"))
            more = {"next_page_token": str(begin + self.page)} if len(found) > begin + self.page else {}
            listed = [{**run, "state": self.states[0]} for run in found[begin:][: self.page]]
            return 200, {"runs": listed, **more} if listed else {}
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, int):
            return state, {"message": "not now"}
        if name not in self.runs:
            return 404, {"message": f"there is no run {name}"}
        return 200, _details(self.runs[name], state, self.failing, self.explains)

    def _refuse(self, kind: str, request: dict[str, Any]) -> Optional[tuple[int, Any]]:
        """Returns the error for a request without a permitted namespace; None if it has one.

        Source: https://github.com/kubeflow/pipelines/blob/2.0.5/backend/src/apiserver/server/, run_server.go and
        experiment_server.go.
        """
        experiment = request.get("experiment_id")
        if experiment is not None and experiment not in self.experiments:
            return 404, {"message": f"Experiment {experiment} not found"}
        if not self.profile:
            return None
        namespace = self.experiments[experiment]["namespace"] if experiment else request.get("namespace")
        if not namespace:
            return 400, {"message": f"Invalid input error: {kind} cannot have an empty namespace in multi-user mode"}
        if namespace != self.profile:
            return 403, {"message": f"User is not authorized with reason: {kind} in namespace {namespace}"}
        return None

    def _experiments(self, parameters: dict[str, str], body: Any) -> tuple[int, Any]:
        if body is None:
            wanted = (_wanted(parameters, "EQUALS"), parameters.get("namespace", ""))
            listed = [each for each in self.experiments.values() if (each["display_name"], each["namespace"]) == wanted]
            return 200, {"experiments": listed} if listed else {}
        number = f"experiment-{len(self.experiments) + 1}"
        self.experiments[number] = {"namespace": "", **body, "experiment_id": number}
        return 200, self.experiments[number]


def _wanted(parameters: dict[str, str], operation: str) -> str:
    """Returns the name in a list's filter."""
    (predicate,) = json.loads(parameters["filter"])["predicates"]
    assert predicate == {"operation": operation, "key": "display_name", "stringValue": predicate["stringValue"]}
    return predicate["stringValue"]


def _details(run: dict[str, Any], state: str, failing: str, explains: bool) -> dict[str, Any]:
    """Returns a run as Kubeflow Pipelines 2 describes it: a step is a DAG of one pod, next to its driver.

    Source: https://github.com/kubeflow/pipelines/blob/2.0.5/backend/src/v2/compiler/argocompiler/dag.go.
    """
    error = {"error": {"code": 9, "message": "exit code 5"}} if state == "FAILED" and explains else {}

    def detail(name: str, state: str, *children: str, **more: Any) -> dict[str, Any]:
        record = {"run_id": run["run_id"], "task_id": f"id-of-{name}", "display_name": name, "state": state, **more}
        return {**record, "child_tasks": [{"pod_name": f"pod-{child}"} for child in children]} if children else record

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
        # A task that could not be converted.
        {"run_id": run["run_id"], "task_id": "7", "error": {"code": 13, "message": "Failed to convert a task"}},
    ]
    return {**run, "state": state, "run_details": {"task_details": details}, **error}
