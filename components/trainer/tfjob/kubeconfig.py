"""Where this process learns of its cluster: a kubeconfig, or, in a pod, what Kubernetes has mounted there."""

from __future__ import annotations

import os
from typing import Optional

_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


def config_file() -> Optional[str]:
    """Returns the kubeconfig that is named; None is the usual one."""
    # The library reads the variable only when it is imported.
    return os.environ.get("KUBECONFIG") or None


def in_pod(context: Optional[str]) -> bool:
    """Is the cluster to use the one in which this process runs as a pod.

    Args:
        context: Of the kubeconfig; None is its current one, if there is any.
    """
    configured = context or config_file() or os.path.exists(os.path.expanduser("~/.kube/config"))
    return not configured and "KUBERNETES_SERVICE_HOST" in os.environ


def namespace_of_pod() -> str:
    """Returns the namespace of this pod; empty where nothing says it."""
    try:
        with open(_NAMESPACE_FILE, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""
