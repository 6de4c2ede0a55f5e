"""The Kubernetes API requests for training jobs; answers are plain JSON mappings."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import NotStartedError, PipelineError, TfxEstimatorError
from tfx_estimator.pipeline.base.text import first_line
from tfx_estimator.pipeline.platforms import kubernetes
from tfx_estimator.pipeline.platforms.follow import RefusedError, UnavailableError
from tfx_estimator.pipeline.platforms.training_jobs.failures import text_of
from tfx_estimator.pipeline.platforms.training_jobs.kinds import NODE, TF_JOB, TRAIN_JOB, Kind, Object

# A silent watch is reopened after this time, to detect dead connections.
WATCH_SECONDS = 10
# A silent log, likewise.
_LOG_SECONDS = 90.0
# The namespace if neither declaration nor kubeconfig names one.
NAMESPACE = "default"
_GONE, _CONFLICT, _MISSING, _FORBIDDEN, _INVALID, _BAD = 410, 409, 404, 403, 422, 400
# The most events of a namespace that are read.
_EVENTS = "500"
_MERGE = "application/merge-patch+json"
# A misspelled field of deploy.pod_patch is refused, not dropped.
_STRICTLY = {"fieldValidation": "Strict"}
# Who forbids, in Kubernetes' own words: admission, which may quote the others, a quota, any authorizer. `failed quota`
# asks for limits in the manifest.
_NOT_ADMITTED = re.compile(r"admission webhook|AdmissionPolicy|is forbidden: failed quota")
_QUOTA = re.compile(r"is forbidden: (exceeded quota|insufficient quota|status unknown for quota)")
_NOT_ALLOWED = re.compile(r'User "[^"]*" cannot ')


class ExpiredError(Exception):
    """The resource version has expired: list again."""


class TakenError(Exception):
    """An object of this name exists."""


class MissingError(UnavailableError):
    """No object has this name."""


class Kube:
    """A namespace of a Kubernetes cluster. Requests may raise UnavailableError, or PipelineError if they are refused.

    Args:
        context: Of the kubeconfig; None is its current one, or without a kubeconfig the cluster of this pod.
        namespace: None is the context's, or the pod's.
        kind: Of the training jobs.

    Raises:
        PipelineError: No cluster is configured.
    """

    def __init__(self, context: Optional[str] = None, namespace: Optional[str] = None, kind: Kind = TF_JOB) -> None:
        self.kind = kind
        # Keeps the context's name, because the current context may change.
        self.context, found = kubernetes.find_context(context)
        self.namespace = namespace or found or NAMESPACE
        self._client = kubernetes.Client(lambda: kubernetes.connect(self.context))
        self.host = self._client.host
        self._jobs = self._path_of(kind.api_version, kind.plural)
        self._pods = self._path_of("v1", "pods")

    def ask(self) -> None:
        """Asks for the jobs and their pods, as following does."""
        self.jobs()
        self.pods("any")

    def kubectl(self, words: str) -> str:
        """Returns a kubectl command in this namespace."""
        return kubernetes.kubectl(words, self.context, self.namespace)

    def create(self, manifest: Object, needed: Sequence[Object] = ()) -> Object:
        """Creates a training job after the objects that it needs, which it then owns.

        Raises:
            TakenError: A job of this name exists.
            UnavailableError: It is unknown whether it was created.
            PipelineError: It was refused.
        """
        for each in needed:
            self.add(each)
        job = self._ask("POST", self._jobs, _STRICTLY, body=manifest)
        for each in needed:
            self.add(each, job)
        return job

    def add(self, manifest: Object, job: Optional[Object] = None) -> None:
        """Creates an object that a training job needs, unless it exists: its name identifies its contents.

        Args:
            job: The training job that becomes its owner, as the server returned it; None for no owner.
        """
        path = self._path_of(manifest["apiVersion"], f"{manifest['kind'].lower()}s")
        owner = {}
        if job is not None:
            owner = {key: job[key] for key in ("apiVersion", "kind")}
            owner.update({key: job["metadata"][key] for key in ("name", "uid")})
            owner = {"ownerReferences": [owner]}
        try:
            self._ask("POST", path, _STRICTLY, body={**manifest, "metadata": {**manifest["metadata"], **owner}})
        except TakenError:
            if owner:
                self._ask("PATCH", f"{path}/{manifest['metadata']['name']}", body={"metadata": owner}, kind=_MERGE)

    def read(self, name: str) -> Optional[Object]:
        """Returns a training job; None if it does not exist."""
        # Uses `list`: a 404 of `get` may also mean that the cluster lacks the kind.
        return next(iter(self.jobs(f"metadata.name={name}")["items"]), None)

    def delete(self, name: str, uid: str) -> None:
        """Deletes a training job after its pods, unless it is gone or was replaced by another one."""
        if self.kind is TRAIN_JOB:
            # Kubeflow Trainer recreates the JobSet of a TrainJob that is being deleted: suspended, it starts no pods.
            with contextlib.suppress(MissingError, TakenError):
                body = {"metadata": {"uid": uid}, "spec": {"suspend": True}}
                self._ask("PATCH", f"{self._jobs}/{name}", body=body, kind=_MERGE)
        options = {"propagationPolicy": "Foreground", "preconditions": {"uid": uid}}
        with contextlib.suppress(MissingError, TakenError):
            self._ask("DELETE", f"{self._jobs}/{name}", body=options)

    def jobs(self, selector: str = "", **options: Any) -> Any:
        """Lists training jobs.

        Args:
            options: As of `_ask`; used by `watch`.
        """
        return self._ask("GET", self._jobs, {"fieldSelector": selector, **options.pop("query", {})}, **options)

    def pods(self, name: str, **options: Any) -> Any:
        """Lists a training job's pods; see `jobs`."""
        selector = {"labelSelector": f"{self.kind.job_label}={name}"}
        return self._ask("GET", self._pods, {**selector, **options.pop("query", {})}, **options)

    def refusal(self, name: str, since: str) -> str:
        """Returns the latest warning of what should start a job's pods, since a time; empty if none can be read."""
        # The job itself, its JobSet, its Jobs, and its pods.
        mine = re.compile(rf"{re.escape(name)}(-({NODE}|chief|worker|ps|evaluator)-\d.*)?")
        try:
            query = {"fieldSelector": "type=Warning", "limit": _EVENTS}
            listed = self._ask("GET", self._path_of("v1", "events"), query)["items"]
        except (UnavailableError, TfxEstimatorError):
            return ""  # not every account may read events
        found = [
            (each.get("lastTimestamp") or each["metadata"]["creationTimestamp"], text_of(each))
            for each in listed
            if mine.fullmatch(each["involvedObject"].get("name", ""))
        ]
        at, text = max(found, default=("", ""))
        return text if at >= since else ""

    def log(self, pod: str, since: str) -> Iterator[bytes]:
        """Yields a pod's log to its end; each line begins with its time.

        Args:
            since: A time in RFC 3339 format; empty is from the beginning.

        Raises:
            UnavailableError: It is not available now, or was silent for so long that the connection may be dead.
        """
        query = {"container": self.kind.container, "timestamps": "true", "follow": "true"}
        query.update({"sinceTime": since} if since else {})
        yield from _streamed(self._ask("GET", f"{self._pods}/{pod}/log", query, stream_seconds=_LOG_SECONDS))

    def watch(self, ask: Any, version: str) -> Iterator[tuple[str, Object]]:
        """Yields events for some seconds: `ADDED`, `MODIFIED` or `DELETED`, and the object.

        Args:
            ask: `jobs` or `pods`, with the first argument bound.

        Raises:
            ExpiredError: The server no longer has the version.
        """
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
        rest = b""
        for part in _streamed(ask(query=query, stream_seconds=3.0 * WATCH_SECONDS)):
            *lines, rest = (rest + part).split(b"\n")
            for line in filter(None, lines):
                try:
                    event = json.loads(line)
                except ValueError as error:
                    raise UnavailableError(f"not an event: {line[:80]!r}") from error
                if event["type"] == "ERROR":
                    raise ExpiredError(event["object"].get("message", ""))
                yield event["type"], event["object"]

    @property
    def _get(self) -> str:
        return self.kubectl(f"get {self.kind.plural}")

    def _path_of(self, version: str, plural: str) -> str:
        group = f"/apis/{version}" if "/" in version else f"/api/{version}"
        return f"{group}/namespaces/{self.namespace}/{plural}"

    def _ask(
        self,
        method: str,
        path: str,
        query: Optional[dict[str, str]] = None,
        body: Optional[Object] = None,
        kind: str = "application/json",
        stream_seconds: float = 0.0,
    ) -> Any:
        """Returns the answer.

        Args:
            stream_seconds: How long a streamed answer may be silent; 0 for one that is not streamed.
        """
        from kubernetes.client.rest import ApiException

        connects, reads = kubernetes.TIMEOUT
        timeout = (connects, stream_seconds or reads)
        try:
            response = self._client.request(
                method, path, [*(query or {}).items()], body, kind, timeout, bool(stream_seconds)
            )
            return response if stream_seconds else json.loads(response.data)
        except ApiException as error:
            raise self._error_of(error, method) from error
        except ValueError as error:
            raise UnavailableError(first_line(error)) from error

    def _error_of(self, error: Any, method: str) -> Exception:
        message = kubernetes.message(error)
        is_admission = error.status == _FORBIDDEN and method != "GET" and _NOT_ADMITTED.search(message)
        if error.status == _CONFLICT:
            return TakenError(message)
        if error.status == _GONE:
            return ExpiredError(message)
        if error.status == _MISSING and "page not found" in message:
            return PipelineError(
                f"the Kubernetes cluster {self.host} has no {self.kind.name}s",
                expected=f"the CRD {self.kind.plural}.{self.kind.group}, of version {self.kind.version}",
                todo=f"install {self.kind.install}, or ask the cluster's administrator",
            )
        if error.status == _MISSING and message.startswith("namespaces "):
            get = kubernetes.kubectl("get namespaces", self.context)
            return PipelineError(
                f"the Kubernetes cluster {self.host} has no namespace {self.namespace}: {message}",
                expected="an existing namespace",
                todo=f"correct {self.kind.option('namespace')}, or create it: see `{get}`",
            )
        if error.status == _MISSING:
            return MissingError(message)
        if error.status == kubernetes.UNAUTHORIZED:
            return RefusedError(
                f"the Kubernetes API server {self.host} does not accept the credentials: {message}",
                expected="valid credentials",
                todo=f"log in to the cluster again; see whether `{self._get}` works",
            )
        if error.status == _FORBIDDEN and "must be created before" in message:
            # Kubeflow Trainer's webhook does not have the TrainingRuntime in its cache yet.
            return UnavailableError(message)
        # Nothing else forbids a GET, but a proxy with a page of its own.
        if error.status == _FORBIDDEN and not is_admission and (method == "GET" or _NOT_ALLOWED.search(message)):
            return RefusedError(
                f"the Kubernetes API server {self.host} refuses: {message}",
                expected=f"verbs create, get, list, watch, delete on {self.kind.plural}, list, watch on pods, get on "
                f"pods/log; patch on trainjobs, and create, patch on trainingruntimes and, to submit, configmaps",
                todo=f"grant it by a Role in the namespace {self.namespace}",
            )
        if error.status == _FORBIDDEN and not is_admission and _QUOTA.search(message):
            return NotStartedError(
                f"a quota of the namespace {self.namespace} refuses the {self.kind.name}: {message}",
                expected="room in the quota",
                todo=f"see `{self.kubectl('describe resourcequotas')}`; end what uses it, or have it raised",
            )
        if error.status in (_INVALID, _BAD, _FORBIDDEN):
            by = "admission" if error.status == _FORBIDDEN else "CRD"
            return PipelineError(
                f"the Kubernetes API server refuses the {self.kind.name}: {message}",
                expected=f"a manifest that its {by} allows",
                todo=f"see `tfx-estimator compile --target {self.kind.section}`, correct deploy, and run again",
            )
        return UnavailableError(f"{error.status} {message}")


def _streamed(response: Any) -> Iterator[bytes]:
    import urllib3

    try:
        yield from response.stream(None, decode_content=False)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise UnavailableError(first_line(error)) from error
    finally:
        response.close()
