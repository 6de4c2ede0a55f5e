"""The services that run a custom job: Vertex AI or, in a rehearsal, local processes with Vertex AI's environment."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, Any, Optional, Protocol

from tfx_estimator.components.trainer.cluster.plan import free_ports
from tfx_estimator.components.trainer.cluster.private_network import NoPrivateNetworkError, PrivateNetwork
from tfx_estimator.pipeline.base.ending import keeper
from tfx_estimator.pipeline.base.errors import NotStartedError, TrainingError
from tfx_estimator.pipeline.base.files import read_tail
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.platforms.follow import AGAIN, Followed, JobStatus, UnavailableError
from tfx_estimator.pipeline.platforms.vertex.custom_job import STEP_LABEL
from tfx_estimator.pipeline.platforms.vertex.replica import CLUSTER_SPEC
from tfx_estimator.pipeline.platforms.vertex.service import call_google
from tfx_estimator.pipeline.user_source.modules import package_parent

if TYPE_CHECKING:
    from google.cloud.aiplatform_v1 import JobServiceClient

# Set in a rehearsal, where custom jobs run on this machine.
REHEARSAL = "TFX_ESTIMATOR_REHEARSAL"
SUCCEEDED, FAILED, CANCELLED = "JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"
CANCELLING = "JOB_STATE_CANCELLING"
# Our own state of a deleted job.
MISSING = "NOT_FOUND"
ENDED = (SUCCEEDED, FAILED, CANCELLED, MISSING, "JOB_STATE_EXPIRED", "JOB_STATE_PARTIALLY_SUCCEEDED")


class Service(Followed, Protocol):
    """A service that runs custom jobs."""

    def create(self, job: dict[str, Any]) -> str:
        """Creates a job; returns its name."""

    def find(self, step: str) -> Optional[str]:
        """Returns the latest job with a step's label that is running or has succeeded, if there is one."""


class VertexService:
    """Vertex AI; see Service."""

    def __init__(self, client: JobServiceClient, project: str, region: str) -> None:
        self._client = client
        self._parent = f"projects/{project}/locations/{region}"

    @classmethod
    def of(cls, project: str, region: str) -> VertexService:
        """Returns the service, with the credentials of the step's account."""
        from google.cloud.aiplatform_v1 import JobServiceClient

        client = JobServiceClient(client_options={"api_endpoint": f"{region}-aiplatform.googleapis.com"})
        return cls(client, project, region)

    def create(self, job: dict[str, Any]) -> str:
        """See Service."""
        from google.api_core.exceptions import ResourceExhausted

        try:
            return call_google(
                lambda: self._client.create_custom_job(parent=self._parent, custom_job=job).name, _refused
            )
        except UnavailableError as error:
            if isinstance(error.__cause__, ResourceExhausted):
                what = f"Vertex AI has no room for the custom job: {error}"
                error.final = NotStartedError(what, expected="room in the project's quotas", todo=f"later, {AGAIN}")
            raise

    def find(self, step: str) -> Optional[str]:
        """See Service."""
        request = {"parent": self._parent, "filter": f"labels.{STEP_LABEL}={step}"}
        listed = call_google(lambda: list(self._client.list_custom_jobs(request=request)), _refused)
        usable = [job for job in listed if job.state.name == SUCCEEDED or job.state.name not in ENDED]
        return max(usable, key=lambda job: job.create_time).name if usable else None

    def status(self, job: str) -> JobStatus:
        """See Service."""
        from google.api_core.exceptions import NotFound

        def get() -> JobStatus:
            try:
                found = self._client.get_custom_job(name=job)
            except NotFound as error:
                return JobStatus(MISSING, True, message=str(error))
            message = found.error.message if found.error else ""
            return JobStatus(found.state.name, found.state.name in ENDED, message=message)

        return call_google(get, _refused)

    def cancel(self, job: str) -> None:
        """See Service."""
        self._client.cancel_custom_job(name=job)


def _refused(error: Exception) -> TrainingError:
    return TrainingError(
        f"Vertex AI refuses: {error}",
        expected="an account that may create, list, get and cancel custom jobs, and a job that fits the project",
        todo="see deploy.service_account, deploy.project, deploy.region and deploy.vertex",
    )


def is_rehearsed() -> bool:
    """Returns True in a rehearsal."""
    return bool(os.environ.get(REHEARSAL))


_ENTER = (
    "import os, sys; sys.path[0] = {package!r}; from tfx_estimator.components.trainer.cluster.private_network import "
    "enter; enter([int(fd) for fd in sys.argv[1].split(',') if fd]); os.execvp(sys.argv[2], sys.argv[2:])"
)
# Grace period of all replicas together; less than the step's own.
_END_SECONDS = 40.0
_TAIL_LINES = 10
# The names of the pools in a TF_CONFIG of Vertex AI.
_OF_TF_CONFIG = ("chief", "worker", "ps", "evaluator")

logger = get_logger("trainer")


class LocalService:
    """See `service.Service`; the processes end with the context.

    Args:
        folder: For the logs of the replicas.
        isolated: Whether the replicas get a private network, which reaches nothing else.
    """

    def __init__(self, folder: str, isolated: bool = True) -> None:
        self._folder, self._isolated = folder, isolated
        self._processes: list[subprocess.Popen] = []
        self._logs: list[str] = []
        self._cancelled = False
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> LocalService:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()
        self._stack.close()

    def create(self, job: dict[str, Any]) -> str:
        """Starts the replicas."""
        pools = job["job_spec"]["worker_pool_specs"]
        places = [(pool, index) for pool, spec in enumerate(pools) for index in range(spec["replica_count"])]
        fds = self._network() if len(places) > 1 else ()
        ports = iter(free_ports(len(places)))
        addresses: list[list[str]] = [[] for _ in pools]
        for pool, _ in places:
            addresses[pool].append(f"localhost:{next(ports)}")
        os.makedirs(self._folder, exist_ok=True)
        # A job may follow a failed one, whose processes have ended.
        self._processes, self._logs = [], []
        for pool, index in places:
            container = pools[pool]["container_spec"]
            log = os.path.join(self._folder, f"workerpool{pool}-{index}.log")
            self._logs.append(log)
            env = {each["name"]: each["value"] for each in container.get("env", ())}
            env |= variables(addresses, pool, index)
            words = [*container["command"], *container["args"]]
            with open(log, "ab") as file:
                self._processes.append(_start(words, {**os.environ, **env}, fds, file))
        return f"local/{os.getpid()}"

    def find(self, step: str) -> None:
        """Returns None: the replicas end with the step that started them."""

    def status(self, job: str) -> JobStatus:
        """Ends the other replicas when one has failed, as Vertex AI does."""
        codes = [process.poll() for process in self._processes]
        if self._cancelled:
            return JobStatus(CANCELLED, True)
        for code, log in zip(codes, self._logs):
            if code:
                self._end()
                end = "\n".join(read_tail(log, _TAIL_LINES))
                what = f"the replica {os.path.basename(log)[:-4]} ended with {code}\n{end}"
                return JobStatus(FAILED, True, message=what)
        # Parameter servers never end themselves.
        is_done = bool(codes) and codes[0] == 0
        return JobStatus(SUCCEEDED if is_done else "JOB_STATE_RUNNING", is_done)

    def cancel(self, job: str) -> None:
        """Ends the replicas."""
        self._cancelled = True
        self._end()

    def _network(self) -> tuple[int, ...]:
        if not self._isolated:
            logger.warning("the data are remote: the ports of the replicas are open to all who reach this machine")
            return ()
        try:
            return self._stack.enter_context(PrivateNetwork()).fds
        except NoPrivateNetworkError as error:
            logger.warning(f"the ports of the job's replicas are open to everyone who reaches this machine: {error}")
            return ()

    def _end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _END_SECONDS
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def variables(addresses: list[list[str]], pool: int, index: int) -> dict[str, str]:
    """Returns the environment variables that Vertex AI sets for a replica.

    Args:
        addresses: Of the replicas of each pool.

    Source: https://cloud.google.com/vertex-ai/docs/training/distributed-training.
    """
    cluster = {f"workerpool{place}": listed for place, listed in enumerate(addresses)}
    task = {"type": f"workerpool{pool}", "index": index}
    named = dict(zip(_OF_TF_CONFIG, addresses))
    config = {"cluster": named, "task": {"type": _OF_TF_CONFIG[pool], "index": index}, "environment": "cloud"}
    spec = {"cluster": cluster, "environment": "cloud", "task": task}
    return {CLUSTER_SPEC: json.dumps(spec), "TF_CONFIG": json.dumps(config), "CLOUD_ML_PROJECT_ID": "local"}


def _start(words: list[str], environment: dict[str, str], fds: tuple[int, ...], log: IO[bytes]) -> subprocess.Popen:
    python, *rest = words
    command = [sys.executable if python == "python" else python, *rest]
    enter = [sys.executable, "-c", _ENTER.format(package=str(package_parent())), ",".join(map(str, fds))]
    return subprocess.Popen(
        # Kills the replicas with the step: otherwise they would still train when it is retried.
        [*enter, *keeper.dying_with_this(command)],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        pass_fds=fds,
        start_new_session=True,
    )
