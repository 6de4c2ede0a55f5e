"""Local gRPC services."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any, TypeVar

# A function of request and context, and the types of request and response.
Method = tuple[Callable[[Any, Any], Any], Any, Any]
_Self = TypeVar("_Self", bound="FakeService")


class FakeService:
    """A gRPC service whose methods the test defines; a context manager."""

    def __init__(self, name: str, methods: Mapping[str, Method], workers: int, tls: Any = None) -> None:
        self._name, self._methods, self._workers, self._tls = name, methods, workers, tls

    def __enter__(self: _Self) -> _Self:
        import grpc

        handlers = {
            name: grpc.unary_unary_rpc_method_handler(function, _reader(request), _writer(answer))
            for name, (function, request, answer) in self._methods.items()
        }
        self._server = grpc.server(futures.ThreadPoolExecutor(self._workers))
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(self._name, handlers),))
        place = "localhost:0"
        server = self._server
        self.port = server.add_secure_port(place, self._tls) if self._tls else server.add_insecure_port(place)
        self._server.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.stop(None).wait()

    def channel(self) -> Any:
        import grpc

        return grpc.insecure_channel(f"localhost:{self.port}")


def _reader(message: Any) -> Callable[[bytes], Any]:
    # Of proto-plus, or of protobuf.
    return message.deserialize if hasattr(message, "deserialize") else message.FromString


def _writer(message: Any) -> Callable[[Any], bytes]:
    return message.serialize if hasattr(message, "serialize") else message.SerializeToString
