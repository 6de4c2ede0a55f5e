"""`tfx-estimator serve`: TensorFlow Serving's REST API on this machine, to try a model and its clients."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from tfx_estimator.pipeline.base.errors import DeclarationError, PipelineError
from tfx_estimator.pipeline.base.text import one_line

if TYPE_CHECKING:
    import socket

    from tfx_estimator.pipeline.predict.found_model import FoundModel

HELP = "try a model and its clients: TensorFlow Serving's REST API, and a page, on this machine"
EPILOG = """\
  tfx-estimator serve runs/digits              its pushed versions: the newest one takes over when it is pushed
  tfx-estimator serve runs/digits/serving --name mine --port 0

It is for trying. It is no replacement for TensorFlow Serving, which serves the same folder in production.
"""
_LOOPBACK, _PORT = "127.0.0.1", 8501
_BYTES, _SECONDS = 16 * 2**20, 30.0
# Requests that wait or are answered at a time; a further one gets the status 503.
_MOST = 256
_SERVING = "serving"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("model", metavar="MODEL", help="a run, a folder of versions, or a SavedModel, as of `predict`")
    parser.add_argument("--name", help="the model's name in addresses (default: that of the run or folder)")
    parser.add_argument("--host", default=_LOOPBACK, help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=_PORT, help="0 takes a free one (default: %(default)s)")
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=float, default=_SECONDS, help="for an answer (default: %(default)g)"
    )
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    """Serves until it is interrupted."""
    from tfx_estimator.pipeline.base.installed import uncollected
    from tfx_estimator.pipeline.run.terminal import make_console, quiet

    try:
        import uvicorn
    except ImportError as error:
        raise PipelineError(
            f"serve needs {error.name}, which is not installed here",
            expected="starlette and uvicorn, of the extra `serve`",
            todo="pip install starlette uvicorn",
        ) from error
    if not 0 < args.timeout < math.inf:
        what = f"--timeout {args.timeout:g}: this is out of range"
        raise DeclarationError(what, expected="a positive number of seconds", todo="correct it")
    with quiet(os.devnull) as terminal:
        console = make_console(terminal)
        with console.status("starting TensorFlow"), uncollected():
            from tfx_estimator.pipeline.serve.app import make_app
            from tfx_estimator.pipeline.serve.versions import Versions
        found = _find(args.model)
        name = args.name or _name_of(found.folder, args.model)
        if not re.fullmatch(r"[\w.-]+", name):
            what = f"--name {one_line(name)}: this is no name of a model"
            raise DeclarationError(what, expected="letters, digits, _ . and -", todo="give another by --name")
        with console.status("loading the model"):
            versions = Versions(found, lambda line: console.print(one_line(line)))
        with _listen(args.host, args.port) as server:
            host, port = server.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            for line in _greeting(f"http://{shown}:{port}", name, found.folder, versions.current.signatures):
                console.print(line)
            hosts = [args.host, "localhost"] if args.host == _LOOPBACK else ["*"]
            app = make_app(versions, name, _BYTES, args.timeout, hosts)
            # A call cannot be cancelled: the end waits for those that began, as long as an answer may take.
            settings = uvicorn.Config(
                app,
                log_level="warning",
                limit_concurrency=_MOST,
                timeout_graceful_shutdown=max(int(args.timeout), 1),
            )
            versions.start()
            try:
                uvicorn.Server(settings).run(sockets=[server])
            finally:
                versions.close()
    return 0


def _listen(host: str, port: int) -> socket.socket:
    import socket

    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise PipelineError(
            f"{one_line(host)}:{port} cannot be listened on: {error}",
            expected="an address of this machine, and a port that is free",
            todo="choose another by --host and --port; --port 0 takes a free one",
        ) from error


def _find(named: str) -> FoundModel:
    """Finds the newest pushed version of a run, with what the run knows of it; or any SavedModel."""
    import dataclasses

    from tfx_estimator.pipeline.config.paths import is_address
    from tfx_estimator.pipeline.predict.found_model import find
    from tfx_estimator.pipeline.report.source import find_runs

    found = find(named)
    if is_address(named):
        return found
    try:
        (run,) = find_runs([named])
    except DeclarationError:
        return found
    pushed = run.summary.get("pushed")
    folder = os.path.dirname(pushed) if pushed else os.path.join(run.home, _SERVING)
    try:
        # Each version knows its own classes: those of the latest run may be others.
        return dataclasses.replace(found, folder=find(folder).folder, labels=())
    except DeclarationError:  # nothing was pushed yet
        return found


def _name_of(folder: str, named: str) -> str:
    """Returns the name of the folder of versions, of a pipeline's own folder that of the pipeline."""
    base, version = os.path.split(folder)
    if not version.isdigit():
        base = os.path.abspath(os.path.expanduser(named)).rstrip("/")
    above, name = os.path.split(base)
    return os.path.basename(above) if name == _SERVING else name


def _greeting(address: str, name: str, folder: str, signatures: Collection[str]) -> list[str]:
    model = f"{address}/v1/models/{name}"
    lines = [f"model    {one_line(folder)}", f"page     {address}/", f"API      curl {model}/metadata"]
    if "encoded" in signatures:
        instance = '{\\"encoded\\": {\\"b64\\": \\"$(base64 -w0 FILE.png)\\"}}'
        body = f'{{\\"signature_name\\": \\"encoded\\", \\"instances\\": [{instance}]}}'
        lines.append(f'         curl -d "{body}" {model}:predict')
    return [*lines, "for trying alone: TensorFlow Serving is for production; Ctrl-C ends it"]
