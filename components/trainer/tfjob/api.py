"""What is asked of a Kubernetes API server; answers are plain mappings, as JSON has them."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator
from typing import Any, Optional

from tfx_estimator.components.trainer.tfjob.kubeconfig import config_file, in_pod, namespace_of_pod
from tfx_estimator.components.trainer.tfjob.manifest import CONTAINER, GROUP, PLURAL, VERSION
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.text import first_line

# Timeouts to connect, and to read an answer.
_TIMEOUT = (5.0, 30.0)
# A watch without news is requested anew after so long, which finds dead connections.
WATCH_SECONDS = 10
# So is a log, if its pod prints nothing for so long.
_LOG_SECONDS = 90.0
# The namespace if neither declaration nor kubeconfig names one.
NAMESPACE = "default"
_OF_JOB = "training.kubeflow.org/job-name"
_GONE, _CONFLICT, _MISSING, _FORBIDDEN, _UNAUTHORIZED, _INVALID, _BAD = 410, 409, 404, 403, 401, 422, 400

Object = dict[str, Any]


class LostError(Exception):
    """The API server did not answer, or not for now: it may later."""


class ExpiredError(Exception):
    """What is to be watched from on is forgotten: list anew."""


class TakenError(Exception):
    """There is an object of this name."""


class MissingError(LostError):
    """There is no object of this name."""


class Kube:
    """A namespace of a Kubernetes cluster.

    Args:
        context: Of the kubeconfig; None is its current one, or, without any, the cluster that this process is a pod of.
        namespace: None is the context's, or the pod's.

    Raises:
        PipelineError: No cluster is known here, or the client library is missing.
    """

    def __init__(self, context: Optional[str] = None, namespace: Optional[str] = None) -> None:
        try:
            from kubernetes import client
        except ImportError as error:
            raise PipelineError(
                f"a TFJob needs the Kubernetes client: {error}",
                expected="the package kubernetes, which TFX brings",
                todo="pip install 'kubernetes>=12,<13'",
            ) from error
        # Keeps the context's name, because the current context may change.
        self.context, found = find_context(context)
        connection = connect(self.context)
        self.namespace = namespace or found or NAMESPACE
        self.host = connection.configuration.host
        self._core, self._custom = client.CoreV1Api(connection), client.CustomObjectsApi(connection)
        self._place = (GROUP, VERSION, self.namespace, PLURAL)

    def check(self) -> None:
        """Finds out early that there can be no TFJob.

        Raises:
            PipelineError: There is no such server, no training operator's CRD, or no permission.
        """
        try:
            self.jobs()
            self.pods("any")
        except LostError as error:
            raise PipelineError(
                f"the Kubernetes API server {self.host} does not answer: {error}",
                expected="a cluster that can be reached from here",
                todo=f"see whether `{self.kubectl('get tfjobs')}` works, and deploy.tfjob.context",
            ) from error

    def kubectl(self, words: str) -> str:
        """Returns a command for whoever is to look into this namespace."""
        return kubectl(words, self.context, self.namespace)

    def create(self, manifest: Object) -> Object:
        """Creates a TFJob.

        Raises:
            TakenError: There is one of this name.
            LostError: Nobody knows whether it was created.
            PipelineError: It was refused, or there is no such namespace.
        """
        try:
            return self._send(self._custom.create_namespaced_custom_object, *self._place, manifest)
        except MissingError as error:
            raise PipelineError(
                f"the Kubernetes cluster {self.host} has no namespace {self.namespace}: {error}",
                expected="a namespace that there is",
                todo=f"correct deploy.tfjob.namespace, or create it: see `{kubectl('get namespaces', self.context)}`",
            ) from error

    def create_config_map(self, manifest: Object) -> Optional[Object]:
        """Creates a ConfigMap, whose name is of its contents: one that is there is as good.

        Returns:
            What was created, as the server tells of it; None where it was there.

        Raises:
            LostError: Nobody knows whether it was created.
            PipelineError: It was refused.
        """
        with contextlib.suppress(TakenError):
            return self._send(self._core.create_namespaced_config_map, self.namespace, manifest)
        return None

    def delete_config_map(self, made: Object) -> None:
        """Deletes a ConfigMap; one that has gone, or was given to a TFJob since, is left alone.

        Args:
            made: As `create_config_map` returned it.

        Raises:
            LostError: The server did not answer.
            PipelineError: It was refused.
        """
        as_it_was = {key: made["metadata"][key] for key in ("uid", "resourceVersion")}
        name, options = made["metadata"]["name"], {"preconditions": as_it_was}
        with contextlib.suppress(MissingError, TakenError):
            self._send(self._core.delete_namespaced_config_map, name, self.namespace, body=options)

    def own_config_map(self, manifest: Object, job: Object) -> None:
        """Makes a TFJob the owner of a ConfigMap, which goes with it; one that went with an earlier TFJob is made anew.

        Args:
            job: The TFJob, as the server tells of it.

        Raises:
            LostError: The server did not answer.
            PipelineError: It was refused.
        """
        owner = {key: job[key] for key in ("apiVersion", "kind")}
        owner.update({key: job["metadata"][key] for key in ("name", "uid")})
        owned = {"metadata": {"ownerReferences": [owner]}}
        try:
            # Kubernetes merges owners by their uid, so other owners of this ConfigMap stay.
            self._send(self._core.patch_namespaced_config_map, manifest["metadata"]["name"], self.namespace, owned)
        except MissingError:
            self.create_config_map({**manifest, "metadata": {**manifest["metadata"], **owned["metadata"]}})

    def read(self, name: str) -> Optional[Object]:
        """Returns a TFJob; None if there is none.

        Raises:
            LostError: The server did not answer.
        """
        # Uses `list`: a 404 of `get` may also mean that the cluster does not know TFJobs.
        return next(iter(self.jobs(f"metadata.name={name}")["items"]), None)

    def delete(self, name: str, uid: str) -> None:
        """Deletes a TFJob, which goes after its pods; one that has gone, or is another one by now, is left alone.

        Raises:
            LostError: The server did not answer.
        """
        options = {"propagationPolicy": "Foreground", "preconditions": {"uid": uid}}
        try:
            self._send(self._custom.delete_namespaced_custom_object, *self._place, name, body=options)
        except (MissingError, TakenError):
            return

    def jobs(self, selector: str = "", **options: Any) -> Object:
        """Lists TFJobs, as `watch` asks for them, too."""
        return self._send(self._custom.list_namespaced_custom_object, *self._place, field_selector=selector, **options)

    def pods(self, name: str, **options: Any) -> Object:
        """Lists the pods of a TFJob; likewise."""
        selector = f"{_OF_JOB}={name}"
        return self._send(self._core.list_namespaced_pod, self.namespace, label_selector=selector, **options)

    def log(self, pod: str, since: str, follows: bool) -> Iterator[bytes]:
        """Yields what a pod prints, each line with its time before it.

        Args:
            since: A time, as RFC 3339 has it; empty is from the beginning.
            follows: Whether to the pod's end; else what there is.

        Raises:
            LostError: It cannot be had, for now; or nothing was said for so long that the connection may be dead.
            PipelineError: It is refused.
        """
        yield from _streamed(self._send(self._open_log, pod, since, follows, _stream=True))

    def _open_log(self, pod: str, since: str, follows: bool, **options: Any) -> Any:
        # The library's own function does not know `sinceTime`.
        asked = {"container": CONTAINER, "timestamps": "true", "follow": str(follows).lower()}
        asked.update({"sinceTime": since} if since else {})
        path, place = "/api/v1/namespaces/{namespace}/pods/{name}/log", {"namespace": self.namespace, "name": pod}
        options.update(auth_settings=["BearerToken"], _return_http_data_only=True)
        return self._core.api_client.call_api(path, "GET", place, list(asked.items()), **options)

    def watch(self, ask: Any, version: str) -> Iterator[tuple[str, Object]]:
        """Yields what happens to objects: `ADDED`, `MODIFIED` or `DELETED`, and the object; for some seconds.

        Args:
            ask: `jobs` or `pods`, with the first argument bound.

        Raises:
            ExpiredError: The server has forgotten it.
            LostError: The connection was lost.
        """
        response = ask(watch=True, resource_version=version, timeout_seconds=WATCH_SECONDS, _stream=True)
        rest = b""
        for part in _streamed(response):
            *lines, rest = (rest + part).split(b"\n")
            for line in filter(None, lines):
                try:
                    event = json.loads(line)
                except ValueError as error:
                    raise LostError(f"this is no event: {line[:80]!r}") from error
                if event["type"] == "ERROR":
                    raise ExpiredError(event["object"].get("message", ""))
                yield event["type"], event["object"]

    def _send(self, function: Any, *arguments: Any, _stream: bool = False, **options: Any) -> Any:
        import urllib3
        from kubernetes.client.rest import ApiException

        timeout = (_TIMEOUT[0], 3.0 * WATCH_SECONDS if options.get("watch") else _LOG_SECONDS) if _stream else _TIMEOUT
        options.update(_preload_content=False, _request_timeout=timeout)
        try:
            try:
                response = function(*arguments, **options)
            except ApiException as error:
                if error.status != _UNAUTHORIZED:
                    raise
                # Credentials end; the library asks for them only when it connects.
                self._core.api_client = self._custom.api_client = connect(self.context)
                response = function(*arguments, **options)
            return response if _stream else json.loads(response.data)
        except ApiException as error:
            raise self._error_of(error) from error
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise LostError(first_line(error)) from error

    def _error_of(self, error: Any) -> Exception:
        said = message(error)
        if error.status == _CONFLICT:
            return TakenError(said)
        if error.status == _GONE:
            return ExpiredError(said)
        if error.status == _MISSING and "page not found" in said:
            return PipelineError(
                f"the Kubernetes cluster {self.host} has no TFJobs",
                expected="the CRD tfjobs.kubeflow.org, of version v1",
                todo="install the Kubeflow training operator 1.x, or ask who runs the cluster",
            )
        if error.status == _MISSING:
            return MissingError(said)
        if error.status == _UNAUTHORIZED:
            return PipelineError(
                f"the Kubernetes API server {self.host} does not know who asks: {said}",
                expected="credentials that it knows",
                todo=f"log in to the cluster again; see whether `{self.kubectl('get tfjobs')}` works",
            )
        if error.status == _FORBIDDEN:
            return PipelineError(
                f"the Kubernetes API server {self.host} refuses: {said}",
                expected="verbs create, get, list, watch, delete on tfjobs, list, watch on pods, get on pods/log, and, "
                "to submit, create, patch and delete on configmaps",
                todo=f"have a Role in the namespace {self.namespace} say so",
            )
        if error.status in (_INVALID, _BAD):
            return PipelineError(
                f"the Kubernetes API server refuses the TFJob: {said}",
                expected="a manifest that its CRD allows",
                todo="see `tfx-estimator compile --target tfjob`, correct deploy, and run again",
            )
        return LostError(f"{error.status} {said}")


# For errors: the kubectl command that shows the cluster, and the key that names it.
OF_TFJOBS = ("get tfjobs", "deploy.tfjob.context")


def find_context(context: Optional[str], seen_by: tuple[str, str] = OF_TFJOBS) -> tuple[Optional[str], str]:
    """Reads which cluster is meant; nobody is asked.

    Args:
        context: Of the kubeconfig; None is its current one, or, without any, the cluster that this process is a pod of.

    Returns:
        The context's name, None in a pod; and the namespace that the kubeconfig, or the pod, says.

    Raises:
        PipelineError: No cluster is known here.
    """
    import yaml
    from kubernetes import config

    if in_pod(context):
        return None, namespace_of_pod()
    try:
        contexts, active = config.list_kube_config_contexts(config_file())
    except (config.ConfigException, OSError, yaml.YAMLError) as error:
        raise _unknown(error, context, seen_by) from error
    chosen = next((each for each in contexts if each["name"] == context), None) if context else active
    if chosen is None:
        raise _unknown(f"the kubeconfig has no context {context}", context, seen_by)
    return chosen["name"], chosen["context"].get("namespace", "")


def kubectl(words: str, context: Optional[str], namespace: Optional[str] = None) -> str:
    """Returns a command for the user, of the cluster that is meant, whichever is current where he types it.

    Args:
        context: Of the kubeconfig; None is the current one.
        namespace: None is the context's, or none.
    """
    cluster = f" --context {shlex.quote(context)}" if context else ""
    return f"kubectl{cluster} {words}{f' --namespace {namespace}' if namespace else ''}"


def connect(context: Optional[str], seen_by: tuple[str, str] = OF_TFJOBS) -> Any:
    """Connects to a cluster; returns a client.

    Args:
        context: As of `find_context`.

    Raises:
        PipelineError: No cluster is known here.
    """
    from kubernetes import client, config

    try:
        if in_pod(context):
            config.load_incluster_config()
            return client.ApiClient()
        return config.new_client_from_config(config_file(), context)
    except config.ConfigException as error:
        raise _unknown(error, context, seen_by) from error


def _unknown(error: object, context: Optional[str], seen_by: tuple[str, str]) -> PipelineError:
    return PipelineError(
        f"no Kubernetes cluster is known here: {error}",
        expected="a kubeconfig, in ~/.kube/config or where KUBECONFIG says, or a pod's service account",
        todo=f"see whether `{kubectl(seen_by[0], context)}` works, and {seen_by[1]}",
    )


def _streamed(response: Any) -> Iterator[bytes]:
    import urllib3

    try:
        yield from response.stream(None, decode_content=False)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise LostError(first_line(error)) from error
    finally:
        response.close()


def message(error: Any) -> str:
    """Returns what a server said."""
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else error.body or error.reason or ""
    try:
        return json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        return str(body).strip()
