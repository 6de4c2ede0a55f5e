"""Runs of Kubeflow Pipelines 2, by its HTTP API.

Source: https://www.kubeflow.org/docs/components/pipelines/reference/api/kubeflow-pipeline-api-spec/.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Optional

import yaml

from tfx_estimator.pipeline.base.errors import DeclarationError, PipelineError
from tfx_estimator.pipeline.base.text import first_line
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.platforms import kubernetes
from tfx_estimator.pipeline.platforms.follow import RESUMES, JobStatus, RefusedError, Started, UnavailableError, failed
from tfx_estimator.pipeline.platforms.note import Note

NAMESPACE = "kubeflow"
# The path by which kfp's client reaches the service through the Kubernetes API server.
_PROXY = "/api/v1/namespaces/{}/services/ml-pipeline:http/proxy"
_API = "/apis/v2beta1"
# The variable of kfp's client that names a file with a token for an endpoint.
TOKEN_FILE = "KF_PIPELINES_SA_TOKEN_PATH"
_TIMEOUT = (5.0, 60.0)
_PAGE = "100"
_SUCCEEDED = ("SUCCEEDED", "SKIPPED")
# A run that is being cancelled, which cannot be continued.
_ENDING = "CANCELING"
_FAILED = ("FAILED", "CANCELED", _ENDING)
_BAD_REQUEST, _FORBIDDEN, _REDIRECTION = 400, 403, 3
_PERMANENT = (_BAD_REQUEST, _FORBIDDEN, 404, 405, 422, 501)
_LOCAL_UI = "http://localhost:8080"


def place_of(deploy: DeploySection, target: str, **options: Optional[str]) -> Note:
    """Returns a note of the submission's destination, without a job yet and without a request.

    Args:
        options: `context`, `namespace`, `endpoint` and `experiment`; see `Kubeflow`.
    """
    context, namespace, endpoint = options["context"], options["namespace"], options["endpoint"]
    if not endpoint:
        context, namespace = kubernetes.current_context(context)[0], namespace or NAMESPACE
    return Note(target, "", context=context, namespace=namespace, endpoint=endpoint, experiment=options["experiment"])


def where(note: Note) -> str:
    """Returns a description of the destination."""
    experiment = f", experiment {note.experiment}" if note.experiment else ""
    if note.endpoint:
        return note.endpoint + experiment + (f" in {note.namespace}" if note.namespace else "")
    return f"context {note.context or '(none)'}, namespace {note.namespace}{experiment}"


def connect(
    note: Note, folder: str, text: str = "", name: str = "", digest: str = "", account: Optional[str] = None
) -> Kubeflow:
    """Connects to a note's service; see `follow.Service`.

    Args:
        folder: For logs of pods.
        text: The compiled documents; empty if a job is only followed, as `name` and `digest`.
        account: Service account of the steps; None is the service's default.

    Raises:
        PipelineError: The service or an account for it is missing.
        UnavailableError: It does not answer.
    """
    run = f"{name}-{digest}"
    return Kubeflow(note.endpoint, note.context, note.namespace, text, run, account, note.experiment)


class Kubeflow:
    """See `follow.Service`.

    Args:
        endpoint: Address of the service; None connects through the Kubernetes API server.
        context: Of the kubeconfig, without an endpoint; None is its current one.
        namespace: Of Kubeflow Pipelines; with an endpoint the experiment's, which is the user's profile.
        text: The compiled documents; empty if a run is only followed.
        name: Of the run, without its number.
        account: Service account of the steps; None is the cluster's default.
        experiment: Of the runs, created if it does not exist; None is the service's default.

    Raises:
        PipelineError: No cluster is configured, or there is no token.
    """

    def __init__(
        self,
        endpoint: Optional[str] = None,
        context: Optional[str] = None,
        namespace: Optional[str] = None,
        text: str = "",
        name: str = "",
        account: Optional[str] = None,
        experiment: Optional[str] = None,
    ) -> None:
        self._text, self._name, self._account = text, name, account
        self._namespace, self._endpoint = namespace or NAMESPACE, endpoint and endpoint.rstrip("/")
        self._experiment, self._profile = experiment, namespace if endpoint else None
        # Keeps the context's name, because the current context may change.
        self._context = None if endpoint else kubernetes.find_context(context)[0]
        self._client = kubernetes.Client(self._connect, _needs_login)
        self._has_answered = False
        self._api = f"{'' if endpoint else _PROXY.format(self._namespace)}{_API}"
        self._runs = f"{self._api}/runs"
        self.host = self._client.host

    def start(self, again: bool) -> Started:
        """See `follow.Service`. An earlier submission is found by its name, as the service chooses a run's ID."""
        experiment = self._find_experiment(self._experiment) if self._experiment else ""
        runs = self._list(experiment)
        for number in sorted(runs, reverse=True):
            state = _state(runs[number])
            if state not in _FAILED and not (again and state in _SUCCEEDED):
                return Started(runs[number]["run_id"], False, state)
        name = f"{self._name}-{1 + max(runs, default=0)}"
        return Started(self._request("POST", self._runs, body=self._body(name, experiment))["run_id"], True)

    def status(self, job: str) -> JobStatus:
        """See `follow.Service`."""
        run = self._request("GET", f"{self._runs}/{job}")
        state = _state(run) or "PENDING"
        tasks, wrong = _details(run, self._task_names(run))
        if state in _SUCCEEDED:
            return JobStatus(state, True, tasks=tasks)
        if state not in _FAILED or state == _ENDING:
            return JobStatus(state, tasks=tasks)
        message = run.get("error") or ""
        todo = f"see the logs of its steps: {self.address(job)}; {RESUMES}"
        text = message.get("message", "") if isinstance(message, dict) else str(message)
        return JobStatus(state, True, failed(job, state, text, wrong, todo), tasks=tasks)

    def cancel(self, job: str) -> None:
        """See `follow.Service`."""
        self._request("POST", f"{self._runs}/{job}:terminate")

    def address(self, job: str) -> str:
        """See `follow.Service`."""
        return f"{self._endpoint or _LOCAL_UI}/#/runs/details/{job}"

    def place(self) -> Mapping[str, Any]:
        """See `follow.Service`."""
        if self._endpoint:
            return {}
        return {"context": self._context, "namespace": self._namespace}

    def close(self) -> None:
        """See `follow.Service`."""
        self._client.library.rest_client.pool_manager.clear()

    def _connect(self) -> Any:
        client = _of_endpoint(self._endpoint) if self._endpoint else kubernetes.connect(self._context)
        manager = client.rest_client.pool_manager
        # Redirections are not followed: most lead to a login page.
        manager.urlopen = partial(manager.urlopen, redirect=False)
        return client

    def _find_experiment(self, name: str) -> str:
        """Returns the ID of the experiment of this name, which is created if it does not exist."""
        path, owner = f"{self._api}/experiments", {"namespace": self._profile} if self._profile else {}
        query = [_filter("EQUALS", name), *owner.items()]
        for experiment in self._request("GET", path, query).get("experiments") or ():
            return experiment["experiment_id"]
        return self._request("POST", path, body={"display_name": name, **owner})["experiment_id"]

    def _list(self, experiment: str) -> dict[int, dict[str, Any]]:
        """Returns the submission's runs by their numbers, with gaps for deleted runs."""
        wanted = [_filter("IS_SUBSTRING", f"{self._name}-"), *([("experiment_id", experiment)] if experiment else [])]
        name = re.compile(rf"{re.escape(self._name)}-(\d+)")
        found, page = {}, ""
        while True:
            query = [*wanted, ("page_size", _PAGE), *([("page_token", page)] if page else [])]
            answer = self._request("GET", self._runs, query)
            for run in answer.get("runs") or ():
                if match := name.fullmatch(run.get("display_name") or ""):
                    found[int(match[1])] = run
            if not (page := answer.get("next_page_token") or ""):
                return found

    def _body(self, name: str, experiment: str) -> dict[str, Any]:
        first, *rest = yaml.load_all(self._text, yaml.CSafeLoader)
        optional = {"experiment_id": experiment, "service_account": self._account}
        more = {key: value for key, value in optional.items() if value}
        spec = {"pipeline_spec": first, "platform_spec": rest[0]} if rest else first
        # The service ignores the specification's `defaultPipelineRoot`.
        # Source: https://github.com/kubeflow/pipelines/blob/2.5.0/backend/src/apiserver/template/template.go.
        root = {"pipeline_root": first["defaultPipelineRoot"]}
        return {"display_name": name, "pipeline_spec": spec, "runtime_config": root, **more}

    def _task_names(self, run: Mapping[str, Any]) -> set[str]:
        """Returns the step names of a run, or of the compiled pipeline; empty if neither is known."""
        whole = run.get("pipeline_spec") or next(yaml.load_all(self._text, yaml.CSafeLoader), None) or {}
        spec = whole.get("pipeline_spec", whole)
        return set(spec.get("root", {}).get("dag", {}).get("tasks", ()))

    def _request(
        self, method: str, path: str, query: Sequence[tuple[str, str]] = (), body: Optional[dict[str, Any]] = None
    ) -> dict[str, Any]:
        from kubernetes.client.rest import ApiException

        try:
            response = self._client.request(method, path, query, body, timeout=_TIMEOUT)
            # A login page; after an earlier answer rather a proxy's error page, while the service restarts.
            if "html" in (response.headers.get("Content-Type") or ""):
                reason = "a page of HTML in place of JSON"
                raise UnavailableError(reason) if self._has_answered else self._unknown(reason)
            answer = json.loads(response.data or b"{}")
            self._has_answered = True
            return answer
        except ApiException as error:
            reason = f"{error.status} {kubernetes.message(error)}"
            if _needs_login(error):
                to = (error.headers.get("Location") or "").partition("?")[0]
                raise self._unknown(f"{error.status}, a redirection to {to}" if to else reason) from error
            if error.status not in _PERMANENT:
                raise UnavailableError(reason) from error
            raise self._refused(error.status, reason) from error
        except ValueError as error:
            raise UnavailableError(first_line(error)) from error

    @property
    def _where(self) -> str:
        return self._endpoint or f"the namespace {self._namespace} of {self.host}"

    def _unknown(self, reason: str) -> PipelineError:
        todo = f"set {TOKEN_FILE} to a file with a token for it; or correct --endpoint"
        return RefusedError(
            f"Kubeflow Pipelines in {self._where} does not accept the credentials: {reason}",
            expected="an account that it accepts",
            todo=todo if self._endpoint else "log in to the cluster again",
        )

    def _refused(self, status: int, reason: str) -> PipelineError:
        todo = "see --endpoint, or --context and --namespace; or upload the compiled file in its pages"
        if status == _BAD_REQUEST and not (self._experiment and self._profile):
            todo = "for a multi-user service, give --endpoint, --experiment NAME and --namespace, your profile"
        return (RefusedError if status == _FORBIDDEN else PipelineError)(
            f"Kubeflow Pipelines in {self._where} refuses: {reason}",
            expected="a service of Kubeflow Pipelines 2 there, and an account that may create runs",
            todo=todo,
        )


def _needs_login(error: Any) -> bool:
    """True if the service, or a proxy in front of it, requires a login: by a status code or a redirection."""
    return error.status == kubernetes.UNAUTHORIZED or error.status // 100 == _REDIRECTION


def _of_endpoint(endpoint: str) -> Any:
    from kubernetes import client

    if not endpoint.startswith(("http://", "https://")):
        raise DeclarationError(
            f"--endpoint {endpoint!r} is no address", expected="https://HOST/pipeline, or the like", todo="correct it"
        )
    configuration = client.Configuration()
    configuration.host = endpoint
    if path := os.environ.get(TOKEN_FILE):
        try:
            with open(path, encoding="utf-8") as file:
                configuration.api_key["authorization"] = f"Bearer {file.read().strip()}"
        except OSError as error:
            raise PipelineError(
                f"{path} cannot be read: {error.strerror}",
                expected=f"a file with a token there, named by {TOKEN_FILE}",
                todo="correct the variable, or unset it",
            ) from error
    return client.ApiClient(configuration)


def _filter(operation: str, value: str) -> tuple[str, str]:
    """Returns the query parameter that filters a list by display name."""
    predicate = {"operation": operation, "key": "display_name", "stringValue": value}
    return "filter", json.dumps({"predicates": [predicate]})


def _state(run: Mapping[str, Any]) -> str:
    return run.get("state") or ""


def _details(found: Mapping[str, Any], names: set[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the states of a run's steps, and the messages of the failed ones.

    A step is a DAG of its name, whose only child is the pod `executor`; next to it is the pod `NAME-driver`. An
    unreadable task has no name.

    Source: https://github.com/kubeflow/pipelines/tree/2.0.5/backend/src/v2/compiler/argocompiler.
    """
    tasks = [(each.get("display_name") or "", each) for each in found.get("run_details", {}).get("task_details") or ()]
    steps = {name: each for name, each in tasks if (name in names if names else _is_step(name))}
    return {name: each.get("state") or "" for name, each in steps.items()}, {
        name: (each.get("error") or {}).get("message", "")
        for name, each in steps.items()
        if each.get("state") == "FAILED"
    }


def _is_step(name: str) -> bool:
    return name not in ("", "root", "executor") and not name.endswith("-driver")
