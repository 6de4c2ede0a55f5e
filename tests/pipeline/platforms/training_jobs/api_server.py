"""A real Kubernetes API server over etcd, with the CRDs of training jobs; nothing of the rest of Kubernetes."""

from __future__ import annotations

import contextlib
import json
import lzma
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.pipeline.platforms.training_jobs.crds import CRDS
from tests.root import ROOT
from tests.waiting import wait_until
from tfx_estimator.components.trainer.cluster.plan import free_ports

# Tools and data for tests that are no part of the project: see docs/developing.md.
SHARED = ROOT.parent / "shared"
_BINARY, _CRD = SHARED / "tools" / "kube-apiserver.xz", SHARED / "data" / "crds" / "tfjobs-v1.8.1.yaml"
TOKEN = "a-token-of-the-tests"
_READY_SECONDS = 90.0
# Also of tests that end within a second.
NAMESPACE = "default"
# A service account, as a pod has it.
ACCOUNT, ACCOUNT_TOKEN = f"system:serviceaccount:{NAMESPACE}:trainer", "a-token-of-an-account"


def _missing() -> str:
    """Returns what is missing to run a server; empty if nothing is."""
    if not shutil.which("etcd"):
        return "there is no etcd: apt-get install etcd-server"
    for path in (_BINARY, _CRD):
        if not path.exists():
            return f"there is no {path}"
    return "" if shutil.which("openssl") else "there is no openssl"


class ApiServer:
    """A local API server with its etcd.

    Args:
        folder: For binaries, keys, logs and data.
        *plugins: Admission plugins, in addition to the default ones.
        roles: Whether requests need the permission of a Role; else all may do everything.
    """

    def __init__(self, folder: Path, *plugins: str, roles: bool = False) -> None:
        self.folder, self._plugins, self._roles = folder, plugins, roles
        self._etcd_port, self._peer_port, self.port = free_ports(3)
        self._binary = folder / "kube-apiserver"
        with lzma.open(_BINARY) as packed, self._binary.open("wb") as file:
            shutil.copyfileobj(packed, file)
        self._binary.chmod(0o755)
        key = folder / "account.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        users = [f'{TOKEN},admin,1,"system:masters"', f'{ACCOUNT_TOKEN},{ACCOUNT},2,"system:serviceaccounts"']
        (folder / "tokens.csv").write_text("\n".join([*users, ""]))
        self._processes: dict[str, subprocess.Popen] = {}
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(_kubeconfig(self.port, folder / "certs" / "apiserver.crt")))

    def start(self) -> None:
        self._run(
            "etcd",
            *("etcd", "--data-dir", self.folder / "etcd", "--unsafe-no-fsync"),
            *(f"--{each}-client-urls=http://127.0.0.1:{self._etcd_port}" for each in ("listen", "advertise")),
            f"--listen-peer-urls=http://127.0.0.1:{self._peer_port}",
        )
        self.start_server()
        for crd in (yaml.safe_load(_CRD.read_text()), *CRDS):
            self.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        self._wait(f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/tfjobs")
        self._wait(f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainjobs")

    def start_server(self) -> None:
        key = self.folder / "account.key"
        self._run(
            "server",
            self._binary,
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            *("--bind-address=127.0.0.1", f"--secure-port={self.port}", f"--cert-dir={self.folder / 'certs'}"),
            *("--service-account-issuer=https://tests.example", f"--service-account-key-file={key}"),
            *(f"--service-account-signing-key-file={key}", f"--token-auth-file={self.folder / 'tokens.csv'}"),
            # No controller here creates a namespace's service account.
            *("--disable-admission-plugins=ServiceAccount", "--kubelet-preferred-address-types=InternalIP"),
            *(f"--authorization-mode={'RBAC' if self._roles else 'AlwaysAllow'}", "--shutdown-delay-duration=0s"),
            *(f"--enable-admission-plugins={','.join(self._plugins)}" for _ in self._plugins[:1]),
        )
        self._wait("/readyz")

    def stop_server(self) -> None:
        """Kills the API server, as its machine's failure would."""
        process = self._processes.pop("server")
        process.kill()
        process.wait()

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._processes.clear()

    def patch(self, path: str, change: Any) -> None:
        self.ask("PATCH", path, change, "application/merge-patch+json")

    @contextlib.contextmanager
    def quota(self, **hard: str) -> Iterator[None]:
        """Limits what the namespace holds, as a ResourceQuota whose controller has counted nothing yet."""
        path = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
        self.ask("POST", path, {"metadata": {"name": "full"}, "spec": {"hard": hard}})
        try:
            self.patch(f"{path}/full/status", {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}})
            yield
        finally:
            self.ask("DELETE", f"{path}/full")

    def collect(self, path: str) -> None:
        """Removes the finalizers of a deleted object, as the garbage collector does once it owns nothing."""
        self.patch(path, {"metadata": {"finalizers": None}})

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Sends a request; returns the response or raises RefusedError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30, context=trusting()) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise RefusedError(error.code, error.read().decode()) from None
        return json.loads(text) if text[:1] == b"{" else text.decode()

    def _run(self, name: str, *command: object) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, cwd=self.folder)

    def _wait(self, path: str) -> None:
        refusals: list[Exception] = []

        def answers() -> bool:
            try:
                self.ask("GET", path)
                return True
            except (RefusedError, OSError) as error:
                refusals.append(error)
            ended = [name for name, process in self._processes.items() if process.poll() is not None]
            assert not ended, f"ended: {ended}; {describe()}"
            return False

        def describe() -> str:
            logs = "\n".join((self.folder / f"{name}.log").read_text()[-2000:] for name in self._processes)
            return f"an answer to {path}; the last was {refusals[-1]!r}\n{logs}"

        wait_until(answers, describe, _READY_SECONDS, every=0.2)


class RefusedError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text


@contextlib.contextmanager
def api_server(folder: Path, *plugins: str, roles: bool = False) -> Iterator[ApiServer]:
    if reason := _missing():
        pytest.skip(reason)
    server = ApiServer(folder, *plugins, roles=roles)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _kubeconfig(port: int, authority: Path) -> dict[str, Any]:
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(authority)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "tests", "user": {"token": TOKEN}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
        "current-context": "tests",
    }
