"""Beam's own local engine, with its workers in processes of this machine.

Beam has such a mode too (`--direct_running_mode=multi_processing`). There its servers listen on every address of the
machine, a worker that has died is waited for without end, none finds the user's modules, and errors come back as text.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Iterable, Mapping
from typing import Any, Optional

import grpc
from apache_beam import Pipeline
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.portability.api import beam_fn_api_pb2, beam_provision_api_pb2, endpoints_pb2
from apache_beam.runners.portability.fn_api_runner import fn_runner, worker_handlers
from apache_beam.runners.portability.portable_runner import JobServiceHandle
from apache_beam.transforms import environments
from google.protobuf import json_format, text_format

from tfx_estimator.pipeline import fresh_python, loopback
from tfx_estimator.pipeline.beam import worker_errors

_URN = "tfx_estimator:env:process:v1"
# For a worker that has nothing left to do to end by itself.
_END_SECONDS = 5.0
_TICK_SECONDS = 0.1


def _using(function: Any, **others: Any) -> Any:
    """A copy of a function that finds others under names of its module: what Beam's own users call is left as it is."""
    if missing := set(others) - set(function.__code__.co_names):
        raise ImportError(f"{function.__qualname__} of this apache-beam uses no {', '.join(sorted(missing))}")
    found = {**function.__globals__, **others}
    return types.FunctionType(function.__code__, found, function.__name__, function.__defaults__, function.__closure__)


class _Grpc:
    """`grpc`, whose servers are heard on this machine alone."""

    def __getattr__(self, name: str) -> Any:
        return getattr(grpc, name)

    @staticmethod
    def server(*args: Any, **kwargs: Any) -> grpc.Server:
        server = grpc.server(*args, **kwargs)
        listen = server.add_insecure_port
        server.add_insecure_port = lambda address: listen(address.replace("[::]", "127.0.0.1"))  # type: ignore[method-assign]
        return server


class _Server(worker_handlers.GrpcServer):
    """Beam's, which asks nobody for a password, and would listen on all addresses."""

    __init__ = _using(worker_handlers.GrpcServer.__init__, grpc=_Grpc())


class _Manager(worker_handlers.WorkerHandlerManager):
    """Beam's, with the server above."""

    get_worker_handlers = _using(worker_handlers.WorkerHandlerManager.get_worker_handlers, GrpcServer=_Server)


class MultiProcessRunner(fn_runner.FnApiRunner):
    """Runs a pipeline in as many worker processes as `--direct_num_workers` says.

    Workers are fresh interpreters that end with this process, whatever ends it. They are reached by ports of the
    loopback interface. What is raised in one is raised here, with the lines of the user's code; one that dies is an
    error.
    """

    _run_stages = _using(fn_runner.FnApiRunner.run_stages, WorkerHandlerManager=_Manager)

    def __init__(self) -> None:
        super().__init__(default_environment=_Environment(environments.python_sdk_capabilities()))
        self._workers = 1

    def run_pipeline(self, pipeline: Pipeline, options: PipelineOptions) -> Any:
        """Runs it.

        Args:
            pipeline: What to run.
            options: Beam's.

        Returns:
            Beam's result.
        """
        direct = options.view_as(DirectOptions)
        self._workers, direct.direct_num_workers = direct.direct_num_workers or 1, 1
        encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options(drop_default=True))
        self._provision_info = fn_runner.ExtendedProvisionInfo(
            beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
        )
        return super().run_pipeline(pipeline, options)

    def run_stages(self, stage_context: Any, stages: list[Any]) -> Any:
        """Runs it in the workers.

        Raises:
            Exception: What was raised in a worker.
        """
        # Beam gives each pipeline of the local engine one worker, until here.
        self._num_workers = self._workers
        errors = tempfile.mkdtemp()
        told_before, _Worker.errors = _Worker.errors, errors
        try:
            return self._run_stages(stage_context, stages)
        except Exception as error:
            if there := worker_errors.read(errors):
                raise there from (there.__cause__ or error)
            raise
        finally:
            _Worker.errors = told_before
            shutil.rmtree(errors, ignore_errors=True)


@environments.Environment.register_urn(_URN, bytes)
class _Environment(environments.Environment):
    """What the workers run in: this Python."""

    def to_runner_api_parameter(self, context: Any) -> tuple[str, bytes]:
        return _URN, b""

    @staticmethod
    def from_runner_api_parameter(
        payload: bytes, capabilities: Iterable[str], artifacts: Iterable[Any], hints: Mapping[str, bytes], context: Any
    ) -> _Environment:
        return _Environment(capabilities, artifacts, hints)


@worker_handlers.WorkerHandler.register_environment(_URN, bytes)
class _Worker(worker_handlers.GrpcWorkerHandler):
    """A process that works.

    Args:
        payload: Of the environment.
        state: As Beam gives it.
        provision_info: With the pipeline's options.
        grpc_server: Where the process will ask for work.
    """

    # Folder where workers write what was raised in them.
    errors = ""

    def __init__(self, payload: bytes, state: Any, provision_info: Any, grpc_server: Any) -> None:
        super().__init__(state, provision_info, grpc_server)
        self._process: Optional[subprocess.Popen] = None
        self._closed = threading.Event()
        self._watch = threading.Thread(target=self._answer_for_the_dead, name="beam_worker_watch", daemon=True)

    def start_worker(self) -> None:
        """Starts it; its log is this process's."""
        options = json_format.MessageToJson(self.provision_info.provision_info.pipeline_options)
        control = text_format.MessageToString(endpoints_pb2.ApiServiceDescriptor(url=self.control_address))
        self._process = subprocess.Popen(
            [*fresh_python.words(_PROGRAM), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            env={
                **os.environ,
                "CONTROL_API_SERVICE_DESCRIPTOR": control,
                "PIPELINE_OPTIONS": options,
                "WORKER_ID": self.worker_id,
                worker_errors.VARIABLE: self.errors,
                **loopback.no_proxy(os.environ),
            },
            # Ctrl-C is for this process, which then ends its workers.
            start_new_session=True,
        )
        self._watch.start()

    def close(self) -> None:
        """Ends it: by itself, or by force where something went wrong, and nobody waits for what it does."""
        assert self._process
        failed = sys.exc_info()[0] is not None
        force = threading.Timer(0 if failed else _END_SECONDS, self._process.kill)
        force.daemon = True
        force.start()
        self._closed.set()
        super().close()
        force.cancel()

    def stop_worker(self) -> None:
        """Waits for its end."""
        assert self._process
        self._process.wait()
        self._watch.join()

    def _answer_for_the_dead(self) -> None:
        """Ends what waits for a worker that has ended: Beam would wait for ever."""
        assert self._process
        code = self._process.wait()
        ended = f"was killed by signal {-code}" if code < 0 else f"ended, with exit code {code}"
        what = f"a worker process of Beam {ended}; see the log, and for signal 9 whether the memory was used up"
        while True:
            closed = self._closed.is_set()
            for name, future in list(self.control_conn._futures_by_id.items()):
                if not future.is_done():
                    future.set(beam_fn_api_pb2.InstructionResponse(instruction_id=name, error=what))
            if closed:
                return
            time.sleep(_TICK_SECONDS)


_PROGRAM = "from tfx_estimator.pipeline.beam.worker import main; main(int(sys.argv[1]))"
