"""The ASGI application: TensorFlow Serving's routes, and a page to try the model."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tfx_estimator.pipeline.base.cpus import available_cpus
from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.report.page import render
from tfx_estimator.pipeline.serve import trial
from tfx_estimator.pipeline.serve.servable import Servable
from tfx_estimator.pipeline.serve.values import RequestError, parse
from tfx_estimator.pipeline.serve.versions import Versions

# TensorFlow Serving's own patterns.
_CALL = re.compile(r"(?i)/v1/models/([^/:]+)(?:/versions/(\d+))?:(classify|regress|predict)")
_STATUS = re.compile(r"(?i)/v1/models(?:/([^/:]+))?(?:/versions/(\d+))?(/metadata)?")


def make_app(
    versions: Versions, name: str, most_bytes: int, seconds: float, hosts: Sequence[str] = ("*",)
) -> Starlette:
    """Returns the application.

    Args:
        name: The model's.
        most_bytes: Limit of a request's body.
        seconds: Limit of a request's time, reading included.
        hosts: Names by which it is asked; `*` is any.
    """
    pool = ThreadPoolExecutor(available_cpus(), thread_name_prefix="call")

    async def answer(request: Request, work: Callable[[bytes], Any]) -> Response:
        async def found() -> Any:
            body = await _read(request, most_bytes)
            return await asyncio.get_running_loop().run_in_executor(pool, work, body)

        try:
            return _json(await asyncio.wait_for(found(), seconds))
        except asyncio.TimeoutError:
            return _json({"error": f"Timed out after {seconds:g} seconds"}, 504)
        except RequestError as error:
            return _json({"error": str(error)}, error.status)
        except TfxEstimatorError as error:  # `predict` does not know how to call this model
            return _json({"error": error.what}, 400)

    def call(path: str, body: bytes) -> Any:
        match = _CALL.fullmatch(path)
        if not match:
            raise RequestError(f"Malformed request: POST {path}")
        servable = _servable(versions.current, name, match[1], match[2])
        document, method = parse(body), match[3].lower()
        return servable.predict(document) if method == "predict" else servable.score(document, method)

    def describe(path: str) -> Any:
        match = _STATUS.fullmatch(path)
        if not match:
            raise RequestError(f"Malformed request: GET {path}")
        if not match[1]:
            raise RequestError("Missing model name in request.")
        current = versions.current
        if match[3]:
            return _servable(current, name, match[1], match[2]).metadata(name)
        if match[1] != name:
            raise RequestError(f"Could not find any versions of model {match[1]}", 404)
        if match[2] not in (None, str(current.version)):
            raise RequestError(f"Could not find version {match[2]} of model {name}", 404)
        status = {"error_code": "OK", "error_message": ""}
        return {"model_version_status": [{"version": str(current.version), "state": "AVAILABLE", "status": status}]}

    def try_it(kind: str, body: bytes) -> Any:
        model = versions.current.tried
        return trial.predict(model, parse(body) if kind.startswith("application/json") else body)

    async def v1(request: Request) -> Response:
        if request.method == "POST":
            return await answer(request, partial(call, request.url.path))
        # Of calls that take long, none delays it.
        try:
            return _json(describe(request.url.path))
        except RequestError as error:
            return _json({"error": str(error)}, error.status)

    async def tried(request: Request) -> Response:
        return await answer(request, partial(try_it, request.headers.get("content-type", "")))

    async def page(request: Request) -> Response:
        return HTMLResponse(await asyncio.to_thread(make_page, versions.current, name))

    routes = [
        Route("/v1/{rest:path}", v1, methods=["GET", "POST"]),
        Route("/try", tried, methods=["POST"]),
        Route("/", page),
    ]
    # Another name for this machine is that of a foreign page, which would read the answers.
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    return Starlette(
        routes=routes, middleware=[trusted], exception_handlers={HTTPException: _refuse, Exception: _refuse}
    )


def make_page(servable: Servable, name: str) -> str:
    """Returns the page to try a model."""
    try:
        model = servable.tried
        takes, fields, why = bool(model.chosen.image_shape), trial.fields_of(model), ""
    except TfxEstimatorError as error:
        takes, fields, why = False, {}, error.what
    values = {"name": name, "version": servable.version, "takes_images": takes, "fields": fields, "why": why}
    return render("page.html.j2", __package__, signatures=sorted(servable.signatures), **values)


def _servable(current: Servable, name: str, asked: str, version: str | None) -> Servable:
    if asked != name or version not in (None, str(current.version)):
        wanted = f"Latest({asked})" if version is None else f"Specific({asked}, {version})"
        raise RequestError(f"Servable not found for request: {wanted}", 404)
    return current


async def _refuse(request: Request, error: Exception) -> Response:
    text = getattr(error, "detail", "") or f"{type(error).__name__}: {error}"
    return _json({"error": text}, getattr(error, "status_code", 500))


async def _read(request: Request, most: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise RequestError(f"The request has more than {most:,} bytes", 413)
        parts.append(part)
    return b"".join(parts)


def _json(found: Any, status: int = 200) -> Response:
    # NaN and Infinity are written as TensorFlow Serving writes them.
    return Response(json.dumps(found).encode(), status, media_type="application/json")
