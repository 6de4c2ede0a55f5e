"""Beam on Flink, Spark and other job servers: Beam's runners, which also cancel a job that is not waited for."""

from __future__ import annotations

import shutil
import signal
from typing import Any, Optional

import grpc
from apache_beam.options.pipeline_options import JobServerOptions, PipelineOptions, StandardOptions
from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.portability import flink_runner, portable_runner, spark_runner
from apache_beam.runners.portability.job_server import JobServer

from tfx_estimator.pipeline.base.ending import shared_status, signals
from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.base.log import get_logger

_CANCEL_SECONDS = 20.0

logger = get_logger("beam")


class PortableRunner(portable_runner.PortableRunner):
    """Beam's runner, which follows the job to its end; a signal cancels it."""

    _server: Optional[JobServer] = None

    def run_portable_pipeline(self, pipeline: Any, options: PipelineOptions) -> Any:
        """Runs the pipeline to its end."""
        try:
            with signals.handled():
                result = super().run_portable_pipeline(pipeline, options)
                if not options.view_as(StandardOptions).no_wait_until_finish:
                    # Waits here, where the job can be cancelled: TFX does nothing else with the result, too.
                    self._wait(result)
            return result
        except grpc.RpcError as error:
            # Its text has several lines.
            raise TfxEstimatorError(
                f"Beam's job server fails: {error.details() if hasattr(error, 'details') else error}",
                expected="a job server of this version of Beam, or a near one, that reaches its engine",
                todo="see the job server's lines in the log",
            ) from error
        finally:
            # Beam would leave a process of Java for each component until this one ends.
            if self._server is not None:
                self._server.stop()

    def _wait(self, result: Any) -> None:
        try:
            result.wait_until_finish()
        except Exception:
            raise  # the job has ended
        except BaseException:
            with shared_status.patient(), signals.held():
                logger.warning(f"cancelling the job {result._job_id}, which is no longer waited for")
                try:
                    request = beam_job_api_pb2.CancelJobRequest(job_id=result._job_id)
                    result._job_service.Cancel(request, timeout=_CANCEL_SECONDS)
                except Exception as error:  # gRPC's, of a job server that was ended by the same Ctrl-C, for example
                    logger.warning(
                        f"the job {result._job_id} may still run: {error}; cancel it in the engine's console"
                    )
            raise


class _WithJobServer(PortableRunner):
    """Starts Beam's job server, a program in Java, for each pipeline."""

    def default_job_server(self, options: PipelineOptions) -> JobServer:
        """Makes the job server, to be stopped after the pipeline."""
        self._server = super().default_job_server(options)
        return self._server

    def create_job_service(self, options: PipelineOptions) -> Any:
        """Starts it."""
        java = options.view_as(JobServerOptions).job_server_java_launcher
        if shutil.which(java) is None:
            raise TfxEstimatorError(
                f"there is no program {java}, which runs Beam's job server",
                expected="Java 11 or 17",
                todo="apt install default-jre-headless",
            )
        before = signal.getsignal(signal.SIGINT)
        try:
            return super().create_job_service(options)
        except Exception as error:  # of the download, of Java, of gRPC
            raise TfxEstimatorError(
                f"Beam's job server does not start: {error}",
                expected="its jar, from Maven Central or as beam.job_server_jar, and the engine",
                todo="tfx-estimator doctor --beam DECLARATION",
            ) from error
        finally:
            # Beam's own would stop the job server before the job is cancelled.
            signal.signal(signal.SIGINT, before)


class FlinkRunner(_WithJobServer, flink_runner.FlinkRunner):
    """Beam's runner for Flink."""


class SparkRunner(_WithJobServer, spark_runner.SparkRunner):
    """Beam's runner for Spark."""
