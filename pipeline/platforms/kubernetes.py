"""A Kubernetes API server: selection of the cluster, and requests."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Callable, Sequence
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.text import first_line
from tfx_estimator.pipeline.platforms.follow import UnavailableError

UNAUTHORIZED = 401
# Timeouts in seconds, to connect and to read.
TIMEOUT = (5.0, 30.0)
_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


class Client:
    """Sends requests, and renews expired credentials, which the library does only when it connects.

    Args:
        connect: Returns a client of the library.
        is_expired: Returns True for the library's error of expired credentials.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        is_expired: Callable[[Any], bool] = lambda error: error.status == UNAUTHORIZED,
    ) -> None:
        self._connect, self._is_expired = connect, is_expired
        self.library = connect()
        self.host: str = self.library.configuration.host

    def request(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]] = (),
        body: Any = None,
        kind: str = "application/json",
        timeout: tuple[float, float] = TIMEOUT,
        streams: bool = False,
    ) -> Any:
        """Returns the response.

        Args:
            kind: The body's content type.
            streams: Whether the response is streamed; else it is read completely.

        Raises:
            kubernetes.client.ApiException: The server refuses.
            UnavailableError: It does not answer.
        """
        import urllib3
        from kubernetes.client.rest import ApiException

        def call() -> Any:
            response = self.library.call_api(
                path,
                method,
                query_params=list(query),
                header_params={"Accept": "application/json", "Content-Type": kind},
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=timeout,
            )
            if not streams:
                _ = response.data  # reads and caches it
            return response

        try:
            try:
                return call()
            except ApiException as error:
                if not self._is_expired(error):
                    raise
                self.library = self._connect()
                return call()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise UnavailableError(first_line(error)) from error


def find_context(context: Optional[str]) -> tuple[Optional[str], str]:
    """Finds the cluster of a context, without a request.

    Args:
        context: Of the kubeconfig; None is its current one, or without a kubeconfig the cluster of this pod.

    Returns:
        The context's name, None in a pod; and the namespace of the context, or of the pod.

    Raises:
        PipelineError: No cluster is configured.
    """
    import yaml
    from kubernetes import config

    if _in_pod(context):
        try:
            with open(_NAMESPACE_FILE, encoding="utf-8") as file:
                return None, file.read().strip()
        except OSError:
            return None, ""
    try:
        contexts, active = config.list_kube_config_contexts(_config_file())
    except (config.ConfigException, OSError, yaml.YAMLError) as error:
        raise _unknown(error, context) from error
    chosen = next((each for each in contexts if each["name"] == context), None) if context else active
    if chosen is None:
        raise _unknown(f"the kubeconfig has no context {context}", context)
    return chosen["name"], chosen["context"].get("namespace", "")


def current_context(context: Optional[str]) -> tuple[Optional[str], str]:
    """Returns the same for a plan, without the error: that of a missing cluster comes with the first request."""
    with contextlib.suppress(PipelineError):
        return find_context(context)
    return context, ""


def connect(context: Optional[str]) -> Any:
    """Connects to a cluster; returns a client of the library.

    Args:
        context: As of `find_context`.

    Raises:
        PipelineError: No cluster is configured.
    """
    from kubernetes import client, config

    try:
        if _in_pod(context):
            config.load_incluster_config()
            return client.ApiClient()
        return config.new_client_from_config(_config_file(), context)
    except config.ConfigException as error:
        raise _unknown(error, context) from error


def kubectl(words: str, context: Optional[str], namespace: Optional[str] = None) -> str:
    """Returns a kubectl command for the user; it names the context, because another one may be current then.

    Args:
        context: Of the kubeconfig; None is the current one.
        namespace: None is the context's, or none.
    """
    cluster = f" --context {shlex.quote(context)}" if context else ""
    return f"kubectl{cluster} {words}{f' --namespace {namespace}' if namespace else ''}"


def message(error: Any) -> str:
    """Returns the message of an API error."""
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else error.body or error.reason or ""
    try:
        return json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        return str(body).strip()


def _config_file() -> Optional[str]:
    # The library reads the variable only when it is imported; None is the default file.
    return os.environ.get("KUBECONFIG") or None


def _in_pod(context: Optional[str]) -> bool:
    configured = context or _config_file() or os.path.exists(os.path.expanduser("~/.kube/config"))
    return not configured and "KUBERNETES_SERVICE_HOST" in os.environ


def _unknown(error: object, context: Optional[str]) -> PipelineError:
    return PipelineError(
        f"no Kubernetes cluster is configured: {error}",
        expected="a kubeconfig, in ~/.kube/config or named by KUBECONFIG, or a pod's service account",
        todo=f"see whether `{kubectl('get pods', context)}` works, and --context, or the target's own `context`",
    )
