"""A cluster's node whose pods are local processes: a fake kubelet and container runtime.

Pods' status goes through the API server, and so do the logs, which it requests from this kubelet.
"""

from __future__ import annotations

import contextlib
import datetime
import http.server
import signal
import ssl
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from tests.pipeline.platforms.training_jobs.api_server import NAMESPACE, ApiServer, RefusedError

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_NODE = "this-machine"


@dataclass
class Pod:
    name: str
    process: subprocess.Popen
    log: Path
    message: Path
    reported: bool = False
    # The lines of its log, each with its time.
    _lines: list[tuple[str, bytes]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def lines(self, ended: bool) -> list[tuple[str, bytes]]:
        """Returns its output by line; once the pod has ended, the last line may be incomplete."""
        with self._lock:
            now = time.time_ns()
            found = [each for each in self.log.read_bytes().splitlines(keepends=True) if ended or each.endswith(b"\n")]
            for number, line in enumerate(found[len(self._lines) :]):
                seconds, rest = divmod(now + number, 1_000_000_000)
                stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
                self._lines.append((f"{stamp}.{rest:09d}Z", line))
            return list(self._lines)


class Kubelet:
    """The node, available inside its context.

    Args:
        container: The name of its pods' containers.
        pods: Returns the pods whose logs are served.
    """

    def __init__(self, server: ApiServer, container: str, pods: Callable[[], Iterable[Pod]]) -> None:
        self._server, self._container = server, container
        self._logs = _serving(server.folder / "certs", lambda name: next((p for p in pods() if p.name == name), None))

    def __enter__(self) -> Kubelet:
        threading.Thread(target=self._logs.serve_forever, name="kubelet", daemon=True).start()
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": _NODE}}
        with contextlib.suppress(RefusedError):  # of an earlier test
            self._server.ask("POST", "/api/v1/nodes", node)
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._logs.server_address[1]}},
        }
        self._server.patch(f"/api/v1/nodes/{_NODE}/status", {"status": status})
        return self

    def __exit__(self, *error: object) -> None:
        self._logs.shutdown()
        self._logs.server_close()

    def bind(self, name: str) -> None:
        """Schedules a pod on this node."""
        target = {"apiVersion": "v1", "kind": "Node", "name": _NODE}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self._server.ask("POST", f"{PODS}/{name}/binding", binding)

    def runs(self, pod: Pod) -> None:
        """Reports a pod as running."""
        self._set(pod, "Running", {"running": {}})

    def report(self, pod: Pod) -> int:
        """Reports once how a pod's process ended; returns its exit code as a shell does."""
        code = pod.process.returncode
        code = code if code >= 0 else 128 - code
        if not pod.reported:
            # Like `FallbackToLogsOnError`.
            message = pod.message.read_text() if pod.message.exists() else pod.log.read_text()[-2048:] if code else ""
            ended = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}
            self._set(pod, "Failed" if code else "Succeeded", {"terminated": ended})
            pod.reported = True
        return code

    def delete(self, path: str, **options: Any) -> None:
        """Deletes an object at once; `options` as in DeleteOptions."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, **options}
        with contextlib.suppress(RefusedError):
            self._server.ask("DELETE", path, body)

    def _set(self, pod: Pod, phase: str, state: dict[str, Any]) -> None:
        container = {"name": self._container, "image": "none", "imageID": "", "restartCount": 0, "state": state}
        status = {"phase": phase, "containerStatuses": [{**container, "ready": phase == "Running"}]}
        with contextlib.suppress(RefusedError):  # it may be deleted already
            self._server.patch(f"{PODS}/{pod.name}/status", {"status": status})


def _serving(certificates: Path, find: Callable[[str], Optional[Pod]]) -> http.server.ThreadingHTTPServer:
    """Serves the logs of pods over HTTPS, as an API server requests them."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            asked = dict(urllib.parse.parse_qsl(query))
            pod = find(path.split("/")[3])
            self.send_response(200 if pod else 404)
            self.end_headers()
            if pod is None:
                return
            number, since = 0, asked.get("sinceTime", "").rstrip("Z")
            with contextlib.suppress(OSError):
                while True:
                    ended = pod.process.poll() is not None
                    lines = pod.lines(ended)
                    for stamp, line in lines[number:]:
                        if stamp >= since:
                            self.wfile.write((f"{stamp} ".encode() if "timestamps" in asked else b"") + line)
                    self.wfile.flush()
                    number = len(lines)
                    if ended or asked.get("follow") != "true":
                        return
                    time.sleep(0.1)

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Without a CA for kubelets, the API server trusts any; its own certificate will do.
    context.load_cert_chain(certificates / "apiserver.crt", certificates / "apiserver.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


def end(process: subprocess.Popen, number: int) -> None:
    """Signals the process; SIGKILL also kills its children, as a container's end does."""
    import psutil

    with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
        if number != signal.SIGKILL:
            process.send_signal(number)
            return
        root = psutil.Process(process.pid)
        for each in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


def seconds_of(stamp: str) -> float:
    return datetime.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S%z").timestamp()
