"""A bucket of Cloud Storage with its generations and preconditions, for Google's own client, in this process.

It has the part of the JSON API that a claim needs: an object's metadata are written, read and removed. Each request is
atomic, like in the real store: `ifGenerationMatch` is refused by 412 if the object has another generation, or none.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from email import message_from_bytes
from typing import Any, Optional
from urllib.parse import parse_qs, unquote, urlsplit

from tests.http_service import Request, Service

BUCKET = "some-bucket"
_OBJECTS = f"/storage/v1/b/{BUCKET}/o"


class Bucket(Service):
    """A server of a bucket; `before` and `after` are called with the verb, before and after each request.

    `address` is the value of STORAGE_EMULATOR_HOST.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        # Returns the status of a refusal; or whether the response is lost.
        self.before: Callable[[str], Optional[int]] = lambda verb: None
        self.after: Callable[[str], bool] = lambda verb: False
        self._generation = 0
        self._step = threading.Lock()

    def do(self, verb: str, name: str, condition: Optional[str], metadata: dict[str, Any]) -> tuple[int, Any]:
        """Executes a request atomically; returns the status and the response."""
        with self._step:
            stored = self.objects.get(name)
            if condition is not None and int(condition) != (int(stored["generation"]) if stored else 0):
                return 412, {"error": {"code": 412, "message": "conditionNotMet"}}
            if verb == "POST":
                self._generation += 1
                stored = {"kind": "storage#object", **metadata, "bucket": BUCKET, "generation": str(self._generation)}
                self.objects[name] = stored
            elif stored is None:
                return 404, {"error": {"code": 404, "message": "no such object"}}
            elif verb == "DELETE":
                del self.objects[name]
                return 204, None
            return 200, stored

    def respond(self, request: Request) -> None:
        body, metadata = request.body(), {}
        place = urlsplit(request.path)
        name = unquote(place.path).removeprefix("/upload").removeprefix(_OBJECTS)
        if request.command == "POST" and not name:
            head = f"Content-Type: {request.headers['Content-Type']}\r\n\r\n".encode()
            metadata = json.loads(message_from_bytes(head + body).get_payload(0).get_payload())
            name = f"/{metadata['name']}"
        if name.startswith("/storage/"):
            status, answer = 404, {"error": {"code": 404, "message": "The specified bucket does not exist."}}
        else:
            condition = parse_qs(place.query).get("ifGenerationMatch", [None])[0]
            status, answer = self.before(request.command), {"error": {"message": "told to refuse"}}
            if not status:
                status, answer = self.do(request.command, name.removeprefix("/"), condition, metadata)
            if self.after(request.command):
                return
        request.answer(status, b"" if answer is None else answer)
