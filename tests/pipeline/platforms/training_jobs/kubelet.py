"""A cluster's node whose pods are local processes: a fake kubelet and container runtime.

Pods' status goes through the API server, and so do the logs, which it requests from this kubelet.
"""

from __future__ import annotations

import contextlib
import datetime
import http.server
import os
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

import psutil

from tests.pipeline.platforms.training_jobs.api_server import NAMESPACE, ApiServer, RefusedError

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_NODE = "this-machine"
_TICK_SECONDS = 0.2


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


class Controller:
    """Runs the pods of an API server's objects on this node, as their controller and the garbage collector do.

    Args:
        folder: For pods' logs.
        container: The name of the pods' containers.
        *listed: The paths of the objects, which it deletes in the end.
    """

    def __init__(self, server: ApiServer, folder: Path, container: str, *listed: str) -> None:
        self._server, self._folder, self._listed = server, folder, (*listed, PODS)
        folder.mkdir(parents=True, exist_ok=True)
        self._over, self._lock = threading.Event(), threading.Lock()
        # The state of each object that has pods: `uid`, `ended`, and its pods as `all_pods`.
        self._known: dict[str, Any] = {}
        # Names of pods without a random suffix, in starting order.
        self.started: list[str] = []
        self._kubelet = Kubelet(server, container, self._pods)
        self._thread = threading.Thread(target=self._work, name="controller", daemon=True)

    def __enter__(self) -> Any:
        self._kubelet.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        for pod in self._pods():
            end(pod.process, signal.SIGKILL)
            pod.process.wait()
        for listed in self._listed:
            for each in self._server.ask("GET", listed)["items"]:
                path = f"{listed}/{each['metadata']['name']}"
                self._kubelet.delete(path)
                if each["metadata"].get("finalizers"):
                    self._server.collect(path)
        self._kubelet.__exit__()

    def kill(self, kind: str, index: int) -> None:
        """Kills all processes of a running pod, as a failed node would."""
        with self._lock:
            end(self._running().pod(kind, index).process, signal.SIGKILL)

    def _running(self) -> Any:
        (known,) = (each for each in self._known.values() if not each.ended)
        return known

    def _pods(self) -> list[Pod]:
        return [pod for known in list(self._known.values()) for pod in list(known.all_pods)]

    def _work(self) -> None:
        while not self._over.wait(_TICK_SECONDS):
            # The server may be down: a controller waits for it.
            with contextlib.suppress(RefusedError, OSError), self._lock:
                self._look()

    def _look(self) -> None:
        raise NotImplementedError

    def _collect(self, known: Any) -> bool:
        """Ends the pods of a deleted object; returns whether they are gone."""
        raise NotImplementedError

    def _living(self, path: str) -> dict[str, Any]:
        """Returns the objects at a path that are not deleted, and removes the others, pods first."""
        there = {each["metadata"]["name"]: each for each in self._server.ask("GET", path)["items"]}
        for name, known in list(self._known.items()):
            gone = name not in there or there[name]["metadata"]["uid"] != known.uid
            if gone and self._collect(known):
                del self._known[name]
        for name in [name for name, each in there.items() if "deletionTimestamp" in each["metadata"]]:
            if name not in self._known or self._collect(self._known[name]):
                self._server.collect(f"{path}/{name}")
                self._known.pop(name, None)
            del there[name]
        return there

    def _stays(self, pod: Pod) -> bool:
        """Asks a pod of a deleted object to end, or deletes it if it has; returns whether it still runs."""
        if pod.process.poll() is None:
            end(pod.process, signal.SIGTERM)
            return True
        self._kubelet.report(pod)
        self._kubelet.delete(f"{PODS}/{pod.name}")
        return False

    def _create(self, owner: dict[str, Any], container: dict[str, Any], **metadata: Any) -> None:
        """Creates a pod without its volumes, whose claims no provisioner binds here."""
        owners = [reference(owner, controller=True, blockOwnerDeletion=True)]
        containers = [{"name": container["name"], "image": container["image"]}]
        spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": containers}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "ownerReferences": owners}, "spec": spec}
        self._server.ask("POST", PODS, made)

    def _run(self, name: str, argv: list[str], variables: dict[str, str]) -> Pod:
        """Starts the process of a pod."""
        log, message = (self._folder / f"{name}.{kind}" for kind in ("log", "message"))
        environment = {**os.environ, **variables, "TFX_ESTIMATOR_TERMINATION_LOG": str(message)}
        with log.open("wb") as file:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, env=environment
            )
        return Pod(name, process, log, message)


def reference(owner: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Returns an entry of `ownerReferences`."""
    named = {each: owner["metadata"][each] for each in ("name", "uid")}
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], **named, **more}


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
