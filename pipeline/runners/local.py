"""Runs the pipeline on this machine; `main` is for scripts of TFX's CLI: see `local_runner.py`."""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from ml_metadata import errors
from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.compiler import constants
from tfx.orchestration import metadata
from tfx.orchestration.local import runner_utils
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.pipeline import Pipeline
from tfx.orchestration.portable import runtime_parameter_utils
from tfx.proto.orchestration import pipeline_pb2

from tfx_estimator.components.inventory import DamagedInputError, put_aside
from tfx_estimator.components.trainer.cluster.plan import resolve_distribution
from tfx_estimator.components.trainer.cluster.tf_config import resolve
from tfx_estimator.pipeline import ingestion
from tfx_estimator.pipeline.base.ending import leaving, scratch, shared_status, signals
from tfx_estimator.pipeline.base.errors import DeclarationError, StoppedError, TfxEstimatorError, UserCodeError
from tfx_estimator.pipeline.base.lock import in_use
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.build import create_pipeline
from tfx_estimator.pipeline.config import Loaded, load
from tfx_estimator.pipeline.config.paths import check_workdir, reject_address
from tfx_estimator.pipeline.folders import PipelineFolders, only_run, relocate_artifacts
from tfx_estimator.pipeline.runners import beam_progress
from tfx_estimator.pipeline.runners.buckets import StoredMetadata, check_buckets
from tfx_estimator.pipeline.runners.launcher import Launcher
from tfx_estimator.pipeline.runners.listener import FAILED, INTERRUPTED, NOT_REACHED, RAN, Listener, NodeRun
from tfx_estimator.pipeline.user_source.frames import user_lines

logger = get_logger("run")


class LocalRunner(LocalDagRunner):
    """TFX's LocalDagRunner, which reports each component to a listener.

    Args:
        listener: Receives the events; without one, it is TFX's own runner.
        folders: The pipeline's; if they are in an object store, the database is stored there, too.
        rerun: Components that are run again, whatever is in TFX's cache.
    """

    def __init__(
        self, listener: Optional[Listener] = None, folders: Optional[PipelineFolders] = None, rerun: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self._listener, self._rerun = listener, rerun
        self._stored = StoredMetadata(folders) if folders and folders.is_stored else None

    def run_with_ir(
        self, pipeline: pipeline_pb2.Pipeline, run_options: Optional[pipeline_pb2.RunOptions] = None
    ) -> None:
        """Runs the components in topological order.

        Args:
            run_options: Of a partial run, which is left to TFX's own runner.
        """
        if run_options or not self._listener:
            super().run_with_ir(pipeline, run_options)
            return
        with beam_progress.shown(), self._stored.used() if self._stored else contextlib.nullcontext():
            ran: dict[str, NodeRun] = {}
            # Limited, because a disk may damage whatever is written.
            repairs = len(pipeline.nodes)
            while not self._run_nodes(pipeline, self._listener, ran, repairs):
                repairs -= 1

    def _run_nodes(
        self, template: pipeline_pb2.Pipeline, listener: Listener, ran: dict[str, NodeRun], repairs: int
    ) -> bool:
        """Runs the components; returns False if a damaged input has to be made again.

        That is another run to TFX, which executes each component once in a run.

        Args:
            ran: Those that ran before a repair, and are cached after it.
        """
        pipeline = pipeline_pb2.Pipeline()
        pipeline.CopyFrom(template)
        run_id = datetime.datetime.now().isoformat()
        runtime_parameter_utils.substitute_runtime_parameter(
            pipeline, {constants.PIPELINE_RUN_ID_PARAMETER_NAME: run_id}
        )
        deployment = runner_utils.extract_local_deployment_config(pipeline)
        config = deployment.metadata_connection_config
        connection = metadata.Metadata(getattr(config, config.WhichOneof("connection_config")))
        nodes = [_not_reached(node.pipeline_node) for node in pipeline.nodes]
        listener.run_started(nodes)
        for index, node in enumerate(pipeline.nodes, 1):
            name = node.pipeline_node.node_info.id
            shared_status.at(f"in component {name}")
            listener.node_started(name, index, len(pipeline.nodes))
            started = time.monotonic()
            if name in self._rerun and name not in ran:
                node.pipeline_node.execution_options.caching_options.enable_cache = False
            try:
                execution = Launcher(
                    stored=self._stored,
                    pipeline_node=node.pipeline_node,
                    mlmd_connection=connection,
                    pipeline_info=pipeline.pipeline_info,
                    pipeline_runtime_spec=pipeline.runtime_spec,
                    executor_spec=runner_utils.extract_executor_spec(deployment, name),
                    custom_driver_spec=runner_utils.extract_custom_driver_spec(deployment, name),
                ).launch()
            except BaseException as error:
                if isinstance(error, DamagedInputError) and repairs and not signals.received():
                    put_aside(error.path)
                    logger.warning(f"{error.what}; it is made again")
                    return False
                if self._stored:
                    with contextlib.suppress(TfxEstimatorError):  # the first error matters more
                        self._stored.store()
                # After a signal, an error is only its consequence.
                stopped = signals.received() or isinstance(error, (signals.SignalledError, StoppedError))
                state, seconds = INTERRUPTED if stopped else FAILED, time.monotonic() - started
                listener.node_ended(replace(nodes[index - 1], state=state, seconds=seconds))
                if isinstance(error, errors.AbortedError):
                    raise in_use(connection.connection_config.sqlite.filename_uri) from error
                raise
            if self._stored:
                self._stored.store()
            seconds = time.monotonic() - started
            execution_id = execution.execution_id if execution else None
            resolver = node.pipeline_node.node_info.type.name.endswith("Resolver")
            state = "resolved" if resolver else _state(connection, execution_id)
            ended = replace(nodes[index - 1], state=state, seconds=seconds, execution_id=execution_id)
            if state == RAN:
                ran[name] = ended
            listener.node_ended(ran.get(name, ended))
        return True


def check_data(loaded: Loaded) -> None:
    """Checks within seconds that the data set is available: `prepare` may take hours to fetch it.

    Raises:
        DataError: It is not.
    """
    loaded.make_importable()
    ingestion.check_available(loaded.declaration.data)


def prepare(loaded: Loaded, folders: PipelineFolders) -> Pipeline:
    """Prepares a run: makes the user's modules importable, fetches the data, builds the pipeline.

    The caller holds the folder's lock, because ML Metadata is updated if the folder was moved.

    Raises:
        DataError: The data set is not available.
        DeclarationError: The declared Beam runner cannot be used with a local work folder, or it trains in pods.
        PipelineError: A bucket does not exist, or ML Metadata's database cannot be used.
    """
    if loaded.declaration.beam.runner == "dataflow" and not folders.is_stored:
        raise DeclarationError(
            "beam.runner: dataflow, in a run on this machine: Dataflow's workers do not see its work folder",
            expected="direct or portable here; dataflow with a work folder in a bucket",
            todo="--workdir gs://BUCKET/FOLDER, or --set beam.runner=direct",
        )
    if (deploy := loaded.declaration.deploy) and deploy.trainjob.train:
        raise DeclarationError(
            "deploy.trainjob.train: a run on this machine trains here",
            expected="false; true is for the target kubeflow, whose step Trainer trains in pods",
            todo="--set deploy.trainjob.train=false, or run the whole pipeline in pods: submit … --target trainjob",
        )
    data = loaded.declaration.data
    check_buckets(
        (folders.workdir, data.dataset, data.data_dir, data.table_path, loaded.declaration.pusher.destination)
    )
    loaded.make_importable()
    # Before the pipeline is built, which contains the fingerprint of the prepared data.
    ingestion.prepare(loaded.declaration.data)
    if not folders.is_stored:
        # A stored database is fetched first: see `StoredMetadata.used`.
        relocate_artifacts(folders.metadata, folders.home)
    return create_pipeline(loaded, folders)


def _not_reached(node: pipeline_pb2.PipelineNode) -> NodeRun:
    return NodeRun(node.node_info.id, NOT_REACHED, 0.0, None, tuple(node.upstream_nodes))


def _state(connection: metadata.Metadata, execution_id: Optional[int]) -> str:
    with connection as handle:
        for execution in handle.store.get_executions_by_id([execution_id] if execution_id else []):
            if execution.last_known_state == metadata_store_pb2.Execution.CACHED:
                return "cached"
    return RAN


def main(declaration: str, workdir: str) -> None:
    """Runs a declaration; an error ends the process with the error's exit code.

    Args:
        declaration: A preset's name, or a file.
    """

    def work() -> None:
        with signals.handled(), scratch.used():
            _run(declaration, workdir)

    # The script may continue after a success.
    if code := leaving.exit_code(work):
        sys.exit(code)


def _run(declaration: str, workdir: str) -> None:
    loaded = load(declaration)
    workdir = os.path.expanduser(workdir)
    check_workdir(workdir, "WORKDIR", stores=True)
    place = resolve(os.environ)
    if place is not None:
        reject_address(workdir, "WORKDIR")
    distribution = resolve_distribution(loaded.declaration.trainer.distribution, place)
    loaded.check_cluster(distribution, joins=place is not None)
    folders = PipelineFolders(workdir, loaded.declaration.name)
    try:
        with only_run(folders):
            LocalRunner(_Silent(), folders).run(prepare(loaded, folders))
    except Exception as error:
        if (number := signals.received()) and not isinstance(error, StoppedError):
            raise signals.SignalledError(number) from error
        raise
    except SystemExit as error:
        # Otherwise the user's script would end as after a success.
        lines = "".join(user_lines(error)[-3:]).rstrip()
        raise UserCodeError(f"your code ended the process: {error!r}\n{lines}", todo="fix the code above") from error


class _Silent:
    """Ignores the events, because TFX logs them."""

    def run_started(self, nodes: Sequence[NodeRun]) -> None: ...
    def node_started(self, node: str, index: int, total: int) -> None: ...
    def node_ended(self, run: NodeRun) -> None: ...
