"""A proxy with TLS under the name of Google's Cloud Storage in front of fake-gcs-server, with faults.

The name of Dataflow's service resolves to it as well; it passes those requests to dataflow_service.py.

Runs in its own network and mount namespaces, where the names resolve to it:

    python -m tests.store.front FOLDER BINARY SHARE [CUT]

SHARE of all requests fails with 503; the first upload with CUT in its name is cut in the middle. The faults are logged
in FOLDER/faults.log.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import http.client
import json
import os
import random
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Optional
from urllib.parse import parse_qs, unquote, urlsplit

from tests.waiting import wait_until

NAME = "storage.googleapis.com"
BUCKET = "some-bucket"
DATAFLOW, DATAFLOW_PORT = "dataflow.googleapis.com", 4444
_NAMES = (NAME, "www.googleapis.com", "oauth2.googleapis.com", DATAFLOW)
_TOKEN = b'{"access_token": "a-token-of-the-tests", "expires_in": 3600, "token_type": "Bearer"}'
_INNER = 4443
# Headers of a connection, not of its contents.
_OWN = ("connection", "transfer-encoding", "content-length", "keep-alive", "host", "expect")
_SIOCSIFFLAGS, _IFF_UP, _DIES = 0x8914, 0x1, 1


class Front(BaseHTTPRequestHandler):
    """Forwards one request; the server shares the class attributes."""

    protocol_version = "HTTP/1.1"
    share = 0.0
    cut = ""
    log = Path()
    chance = random.Random(7)
    lock, changes = threading.Lock(), threading.Lock()
    # The targets of resumable uploads, and the responses of completed ones.
    uploads: dict[str, str] = {}
    written: dict[str, tuple[int, list[tuple[str, str]], bytes]] = {}

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        upload = parse_qs(urlsplit(self.path).query).get("upload_id", [""])[0]
        if self._cuts(upload):
            return
        body = self._body()
        if self.path.startswith("/token"):
            self._respond(200, [("Content-Type", "application/json")], _TOKEN)
            return
        if self.headers.get("Host") == DATAFLOW:
            self._respond(*_send(self.command, self.path, self._headers(), body, DATAFLOW_PORT))
            return
        with self.lock:
            fails = self.chance.random() < self.share
        if fails:
            self._note("503")
            self._respond(503, [], b'{"error": {"code": 503, "message": "told to fail"}}')
        elif upload and self.headers.get("Content-Range", "").startswith("bytes */"):
            # A query for its progress; the store discards a cut upload.
            self._respond(*self.written.get(upload, (308, [], b"")))
        elif self.path.startswith("/batch"):
            self._respond(*self._batch(body))
        else:
            with self.changes if "ifGenerationMatch" in self.path else contextlib.nullcontext():
                status, headers, answer = self._refusal() or _send(self.command, self.path, self._headers(), body)
            self._remember(upload, status, headers, answer)
            self._respond(status, headers, answer)

    def _cuts(self, upload: str) -> bool:
        name = self.uploads.get(upload, self.path)
        length = int(self.headers.get("Content-Length") or 0)
        if self.command not in ("PUT", "POST") or length < 1000:
            return False
        with self.lock:
            if not Front.cut or Front.cut not in unquote(name):
                return False
            Front.cut = ""
        self.rfile.read(length // 2)
        self._note(f"cut {name}")
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
        return True

    def _refusal(self) -> Optional[tuple[int, list[tuple[str, str]], bytes]]:
        """Checks the condition of a removal, like the real store: fake-gcs-server checks only those of uploads."""
        place = urlsplit(self.path)
        wanted = parse_qs(place.query).get("ifGenerationMatch")
        if self.command != "DELETE" or not wanted:
            return None
        status, _, answer = _send("GET", place.path, self._headers(), b"")
        if status != 200 or json.loads(answer)["generation"] == wanted[0]:
            return None
        return 412, [("Content-Type", "application/json")], b'{"error": {"code": 412, "message": "conditionNotMet"}}'

    def _remember(self, upload: str, status: int, headers: list[tuple[str, str]], answer: bytes) -> None:
        places = [value for key, value in headers if key.lower() == "location"]
        if places and (started := re.search(r"upload_id=([^&]+)", places[0])):
            self.uploads[started[1]] = self.path
        elif upload and status == 200:
            self.written[upload] = (status, headers, answer)

    def _batch(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        parts = []
        for part in message_from_bytes(head + body).get_payload():
            first, _, rest = part.get_payload().partition("\n")
            command, path, *_ = first.split()
            inner = message_from_bytes(rest.encode())
            inner_headers = {key: value for key, value in inner.items() if key.lower() not in _OWN}
            status, headers, answer = _send(command, path, inner_headers, inner.get_payload().encode())
            lines = [f"HTTP/1.1 {status} {http.client.responses.get(status, '')}"]
            lines += [f"{key}: {value}" for key, value in headers if key.lower() == "content-type"]
            text = "\r\n".join([*lines, f"Content-Length: {len(answer)}", "", answer.decode()])
            number = part.get("Content-ID", "<0>").replace("<", "<response-")
            parts.append(f"--answer\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n{text}\r\n")
        return 200, [("Content-Type", "multipart/mixed; boundary=answer")], f"{''.join(parts)}--answer--".encode()

    def _headers(self) -> dict[str, str]:
        return {key: value for key, value in self.headers.items() if key.lower() not in _OWN}

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _respond(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for key, value in headers:
            if key.lower() not in _OWN:
                self.send_header(key, value.replace(f"http://{NAME}", f"https://{NAME}"))
        if self.command == "HEAD":
            body = b""
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _note(self, what: str) -> None:
        with self.lock, self.log.open("a") as file:
            file.write(f"{what} {self.command} {self.path}\n")


def _send(
    command: str, path: str, headers: dict[str, str], body: bytes, port: int = _INNER
) -> tuple[int, list[tuple[str, str]], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(command, path, body or None, {**headers, "Host": NAME, "Content-Length": str(len(body))})
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, certificate: Path) -> None:
        super().__init__(("127.0.0.1", 443), Front)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(certificate)

    def finish_request(self, request: socket.socket, client_address: object) -> None:
        """Runs in the request's own thread: a slow handshake does not delay others."""
        with self._tls.wrap_socket(request, server_side=True) as wrapped:
            Front(wrapped, client_address, self)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that disconnect."""


def _make_certificate(folder: Path) -> None:
    names = ",".join(f"DNS:{name}" for name in _NAMES)
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={NAME} -addext subjectAltName={names} "
        f"-keyout {folder}/key.pem -out {folder}/ca.pem".split(),
        check=True,
        capture_output=True,
    )
    (folder / "both.pem").write_text((folder / "key.pem").read_text() + (folder / "ca.pem").read_text())


def _take_names(folder: Path) -> None:
    """Resolves the names to this proxy, in these namespaces."""
    (folder / "hosts").write_text("127.0.0.1 localhost " + " ".join(_NAMES) + "\n")
    subprocess.run(["mount", "--bind", str(folder / "hosts"), "/etc/hosts"], check=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as each:
        fcntl.ioctl(each, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def main(folder: Path, binary: str, share: float, cut: Optional[str] = None) -> None:
    """Serves until it is killed; prints a line when it is ready."""
    Front.share, Front.cut, Front.log = share, cut or "", folder / "faults.log"
    _take_names(folder)
    if not (folder / "both.pem").exists():
        _make_certificate(folder)
    place = ["-host", "127.0.0.1", "-port", str(_INNER), "-public-host", NAME, "-external-url", f"https://{NAME}"]
    inner = subprocess.Popen(
        # A file system would lose TensorFlow's marker of an empty folder: an object whose name ends in `/`.
        [binary, "-scheme", "http", "-backend", "memory", *place],
        stdout=subprocess.DEVNULL,
        stderr=(folder / "server.log").open("ab"),
        preexec_fn=lambda: ctypes.CDLL(None).prctl(_DIES, signal.SIGKILL),
    )

    def serves() -> bool:
        assert inner.poll() is None, f"fake-gcs-server has ended with {inner.returncode}: see server.log"
        return _listens(_INNER)

    wait_until(serves, f"fake-gcs-server on port {_INNER}", every=0.05)
    bucket = f'{{"name": "{BUCKET}"}}'.encode()
    assert _send("POST", "/storage/v1/b?project=some-project", {"Content-Type": "application/json"}, bucket)[0] == 200
    server = _Server(folder / "both.pem")
    print("ready", os.getpid(), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), *sys.argv[4:])
