"""A Kubernetes API server: which one is meant, and how it is asked."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Callable, Sequence
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.text import first_line
from tfx_estimator.pipeline.platforms.follow import LostError

UNAUTHORIZED = 401
# Seconds to connect, and to read an answer.
TIMEOUT = (5.0, 30.0)
_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


class Client:
    """Asks a server; credentials that have ended are asked for anew, as the library does only when it connects.

    Args:
        connect: Returns a client of the library's.
        has_ended: Tells of an error of the library's whether it is that the credentials have ended.
    """

    def __init__(
        self, connect: Callable[[], Any], has_ended: Callable[[Any], bool] = lambda error: error.status == UNAUTHORIZED
    ) -> None:
        self._connect, self._has_ended = connect, has_ended
        self.library = connect()
        self.host: str = self.library.configuration.host

    def ask(
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
            kind: Of the body.
            streams: Whether it is to be read as it comes; else it has come, whole.

        Raises:
            kubernetes.client.ApiException: The server refuses.
            LostError: It does not answer.
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
                _ = response.data  # is read when it is asked for, and kept
            return response

        try:
            try:
                return call()
            except ApiException as error:
                if not self._has_ended(error):
                    raise
                self.library = self._connect()
                return call()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise LostError(first_line(error)) from error


def find_context(context: Optional[str]) -> tuple[Optional[str], str]:
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
    """Returns the same for a plan; a cluster that is not there is told of once it is asked."""
    with contextlib.suppress(PipelineError):
        return find_context(context)
    return context, ""


def connect(context: Optional[str]) -> Any:
    """Connects to a cluster; returns a client of the library's.

    Args:
        context: As of `find_context`.

    Raises:
        PipelineError: No cluster is known here.
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
    """Returns a command for the user, of the cluster that is meant, whichever is current where he types it.

    Args:
        context: Of the kubeconfig; None is the current one.
        namespace: None is the context's, or none.
    """
    cluster = f" --context {shlex.quote(context)}" if context else ""
    return f"kubectl{cluster} {words}{f' --namespace {namespace}' if namespace else ''}"


def message(error: Any) -> str:
    """Returns what a server said."""
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else error.body or error.reason or ""
    try:
        return json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        return str(body).strip()


def _config_file() -> Optional[str]:
    # The library reads the variable only when it is imported; None is the usual file.
    return os.environ.get("KUBECONFIG") or None


def _in_pod(context: Optional[str]) -> bool:
    configured = context or _config_file() or os.path.exists(os.path.expanduser("~/.kube/config"))
    return not configured and "KUBERNETES_SERVICE_HOST" in os.environ


def _unknown(error: object, context: Optional[str]) -> PipelineError:
    return PipelineError(
        f"no Kubernetes cluster is known here: {error}",
        expected="a kubeconfig, in ~/.kube/config or where KUBECONFIG says, or a pod's service account",
        todo=f"see whether `{kubectl('get pods', context)}` works, and --context, or the target's own `context`",
    )
