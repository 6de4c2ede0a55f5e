"""ML Metadata's gRPC server, as Kubeflow has it, over a SQLite file: the wheel's own store behind its own protocol."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from ml_metadata.metadata_store.pywrap.metadata_store_extension import metadata_store
from ml_metadata.proto import metadata_store_pb2


class _Store(grpc.GenericRpcHandler):
    def __init__(self, path: Path) -> None:
        config = metadata_store_pb2.ConnectionConfig()
        config.sqlite.filename_uri = str(path)
        self._store = metadata_store.CreateMetadataStore(
            config.SerializeToString(), metadata_store_pb2.MigrationOptions().SerializeToString()
        )

    def service(self, details: Any) -> Any:
        method = getattr(metadata_store, details.method.rpartition("/")[2])

        def answer(request: bytes, context: Any) -> bytes:
            response, message, code = method(self._store, request)
            if code:
                status = next(each for each in grpc.StatusCode if each.value[0] == code)
                context.abort(status, message.decode() if isinstance(message, bytes) else message)
            return response

        return grpc.unary_unary_rpc_method_handler(answer)


@contextlib.contextmanager
def serve(path: Path) -> Iterator[int]:
    """Serves a store."""
    # One at a time: the store has one connection.
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((_Store(path),))
    port = server.add_insecure_port("localhost:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()
