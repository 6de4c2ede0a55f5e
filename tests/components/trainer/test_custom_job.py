"""The Trainer as a custom job of Vertex AI: what is asked of the service, and what each replica makes of its place."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from concurrent import futures
from typing import Any

import pytest

from tests.pipeline.runners.deployed import COMMON, OF_TARGET
from tfx_estimator.components.trainer.custom_job.plan import STEP_LABEL, Plan
from tfx_estimator.components.trainer.custom_job.processes import variables
from tfx_estimator.components.trainer.custom_job.replica import tf_config
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.errors import DeclarationError, StoppedError, TrainingError, UserCodeError
from tfx_estimator.pipeline.runners.custom_job import make_plan
from tfx_estimator.pipeline.targets import KUBEFLOW_V2, VERTEX

pytestmark = pytest.mark.unit

CLUSTER = "trainer.distribution={train: {strategy: parameter_server, workers: 3, ps: 2}, evaluator: true}"
MACHINES = (
    "deploy.vertex={machine: {machine_type: n1-standard-8}, ps: {machine_type: n1-highmem-4, disk_gb: 200}, "
    "worker: {machine_type: n1-standard-16, accelerator: NVIDIA_TESLA_T4}, timeout_seconds: 7200}"
)


def _load(*overrides: str, target: str = VERTEX) -> Any:
    return load("digits", (*COMMON, *OF_TARGET[target], *overrides), target).declaration


def test_each_process_of_the_distribution_is_a_replica_on_its_machine():
    from google.cloud.aiplatform_v1.types import CustomJob

    plan = Plan.from_json(make_plan(_load(CLUSTER, MACHINES)).to_json())
    job = CustomJob(plan.to_job("gs://bucket/step/custom_job", "gs://bucket/digits"))
    pools = job.job_spec.worker_pool_specs
    assert [(pool.replica_count, pool.machine_spec.machine_type) for pool in pools] == [
        (1, "n1-standard-8"),
        (2, "n1-standard-16"),
        (2, "n1-highmem-4"),
        (1, "n1-standard-8"),
    ]
    assert [pool.machine_spec.accelerator_count for pool in pools] == [0, 1, 0, 0]
    assert pools[1].machine_spec.accelerator_type.name == "NVIDIA_TESLA_T4"
    assert [pool.disk_spec.boot_disk_size_gb for pool in pools] == [0, 0, 200, 0]
    for pool in pools:
        container = pool.container_spec
        assert container.image_uri == plan.image
        assert [*container.command, *container.args][:3] == ["python", "-m", Plan.__module__.replace("plan", "replica")]
        assert [*container.args][-2:] == ["--roles", "chief,worker,ps,evaluator"]
        assert {each.name: each.value for each in container.env} == {"EXAMPLE": "value"}
    assert job.job_spec.service_account == "trainer@example-project.iam.gserviceaccount.com"
    assert job.job_spec.scheduling.timeout.total_seconds() == 7200
    (step,) = {*job.labels} - {"team"}
    assert job.labels["team"] == "vision"
    # Each try has the same, and no other step.
    assert dict(job.labels) == plan.to_job("gs://bucket/step/custom_job", "gs://elsewhere")["labels"]
    assert job.labels[step] != plan.to_job("gs://bucket/other/custom_job", "gs://bucket/digits")["labels"][step]


@pytest.mark.parametrize(
    ("distribution", "roles"),
    [
        ("trainer.distribution={}", ("chief",)),
        (
            "trainer.distribution={train: {strategy: multi_worker_mirrored, workers: 1}, evaluator: true}",
            ("chief", "evaluator"),
        ),
        ("trainer.distribution={train: {strategy: multi_worker_mirrored, workers: 2}}", ("chief", "worker")),
        ("trainer.distribution={train: {strategy: parameter_server, workers: 1, ps: 1}}", ("chief", "ps")),
    ],
)
def test_there_is_no_empty_pool_and_each_replica_finds_its_place(distribution, roles):
    from tfx_estimator.components.trainer.cluster.tf_config import resolve

    plan = make_plan(_load(distribution, "deploy.vertex={}"))
    assert plan.roles == roles
    addresses = [[f"host{place}-{index}:2222" for index in range(pool.count)] for place, pool in enumerate(plan.pools)]
    for place, role in enumerate(roles):
        # What Vertex AI calls the third pool is not what it is.
        environment = variables(addresses, place, 0)
        found = resolve({"TF_CONFIG": tf_config(environment, plan.roles) or ""})
        if len(roles) == 1:
            assert found is None
            continue
        assert found is not None
        assert (found.task.type, found.task.index) == (role, 0)
        there = {kind: len(listed) for kind, listed in found.cluster.addresses.items()}
        assert there == {pool.role: pool.count for pool in plan.pools if pool.role != "evaluator"}


def test_another_jobs_cluster_is_refused():
    assert tf_config({}, ["chief"]) is None
    told = {"cluster": {"workerpool4": ["a:1"]}, "task": {"type": "workerpool4", "index": 0}}
    with pytest.raises(DeclarationError, match="whose pools are chief, worker"):
        tf_config({"CLUSTER_SPEC": json.dumps(told)}, ["chief", "worker"])


def test_the_step_that_only_waits_has_no_machine_of_the_default():
    common = ("deploy.nodes.Trainer=null", "deploy.nodes.default={cpu: 16, accelerator: NVIDIA_TESLA_T4, retries: 3}")
    trains, waits = (_load(*common, *more).deploy.step("Trainer") for more in ((), ("deploy.vertex={}",)))
    assert (trains.cpu, trains.accelerator, trains.retries) == (16, "NVIDIA_TESLA_T4", 3)
    assert (waits.cpu, waits.accelerator, waits.retries) == (None, None, 3)
    assert _load(*common, "deploy.vertex={}").deploy.step("Transform").cpu == 16
    assert _load(*common, "deploy.vertex={}", "deploy.nodes.Trainer={cpu: 1}").deploy.step("Trainer").cpu == 1


@pytest.mark.parametrize(
    ("override", "target", "said"),
    [
        ("deploy.vertex={ps: {}}", VERTEX, "trainer.distribution has no ps"),
        ("deploy.vertex={machine: {machine_type: big}}", VERTEX, "this is no type of machine"),
        ("deploy.vertex={chief: {accelerators: 2}}", VERTEX, "of which kind is not said"),
        ("deploy.vertex={chief: {accelerator: nvidia.com/gpu}}", VERTEX, "this is no accelerator of Vertex AI"),
        ("deploy.vertex={network: default}", VERTEX, "this is no network"),
        ("deploy.vertex={}", KUBEFLOW_V2, "the target kubeflow_v2 has no custom jobs"),
    ],
)
def test_what_is_wrong_is_refused_before_it_is_compiled(override, target, said):
    with pytest.raises(DeclarationError, match=said):
        _load(override, target=target)


def test_resources_of_the_step_that_only_waits_are_warned_of():
    loaded = load("digits", (*COMMON, *OF_TARGET[VERTEX], "deploy.vertex={}"), VERTEX)
    (warning,) = loaded.warnings
    assert "deploy.nodes.Trainer.cpu, deploy.nodes.Trainer.memory_gb, deploy.nodes.Trainer.accelerator" in warning
    assert load("digits", (*COMMON, *OF_TARGET[VERTEX]), VERTEX).warnings == ()
    assert load("digits", (*COMMON, *OF_TARGET[VERTEX], "deploy.vertex={}", "deploy.nodes={}"), VERTEX).warnings == ()


def _measured() -> Any:
    from tfx.types import standard_artifacts

    made = standard_artifacts.ModelRun()
    made.set_float_custom_property("last_step", 600.0)
    return made


class _Server:
    """The part of Vertex AI's own protocol that is used, on a port of this machine.

    Args:
        states: What the job comes to, one an answer; the last stays.
        loses: Does the answer to its creation not arrive.
        heard: Called with each question of how the job goes.
    """

    def __init__(self, states: list[str], loses: bool = False, heard: Any = lambda: None) -> None:
        self.states = list(states)
        self.loses = loses
        self.heard = heard
        self.created: list[Any] = []
        self.cancelled: list[str] = []

    def __enter__(self) -> _Server:
        import grpc
        from google.cloud.aiplatform_v1.types import CustomJob, job_service
        from google.protobuf import empty_pb2

        def create(request: Any, context: Any) -> Any:
            self.created.append(request)
            if self.loses:
                context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "too late")
            return CustomJob(name=f"{request.parent}/customJobs/1", job_spec=request.custom_job.job_spec)

        def find(request: Any, context: Any) -> Any:
            labels = [each.custom_job.labels for each in self.created]
            found = [each for each in labels if f"labels.{STEP_LABEL}={each[STEP_LABEL]}" == request.filter]
            jobs = [CustomJob(name=f"{request.parent}/customJobs/1", state=self.states[0]) for _ in found]
            return job_service.ListCustomJobsResponse(custom_jobs=jobs)

        def get(request: Any, context: Any) -> Any:
            self.heard()
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            if state == "UNAVAILABLE":
                context.abort(grpc.StatusCode.INTERNAL, "not now")
            if state in ("NOT_FOUND", "PERMISSION_DENIED"):
                context.abort(grpc.StatusCode[state], "no")
            return CustomJob(name=request.name, state=state, error={"code": 3, "message": "out of quota"})

        def cancel(request: Any, context: Any) -> Any:
            self.cancelled.append(request.name)
            return empty_pb2.Empty()

        def handler(function: Any, request: Any, serialize: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(function, request.deserialize, serialize)

        methods = {
            "CreateCustomJob": handler(create, job_service.CreateCustomJobRequest, CustomJob.serialize),
            "ListCustomJobs": handler(
                find, job_service.ListCustomJobsRequest, job_service.ListCustomJobsResponse.serialize
            ),
            "GetCustomJob": handler(get, job_service.GetCustomJobRequest, CustomJob.serialize),
            "CancelCustomJob": handler(
                cancel, job_service.CancelCustomJobRequest, lambda message: message.SerializeToString()
            ),
        }
        self._server = grpc.server(futures.ThreadPoolExecutor(1))
        service = "google.cloud.aiplatform.v1.JobService"
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        self.port = self._server.add_insecure_port("localhost:0")
        self._server.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.stop(None).wait()

    def service(self, project: str, region: str) -> Any:
        """Returns the client's side."""
        import grpc
        from google.cloud.aiplatform_v1 import JobServiceClient
        from google.cloud.aiplatform_v1.services.job_service.transports import JobServiceGrpcTransport

        from tfx_estimator.components.trainer.custom_job.service import VertexService

        channel = grpc.insecure_channel(f"localhost:{self.port}")
        return VertexService(JobServiceClient(transport=JobServiceGrpcTransport(channel=channel)), project, region)


@pytest.fixture
def launch(tmp_path, monkeypatch):
    """Executes the step against a server; returns its artifacts."""
    from tfx.types import standard_artifacts

    from tfx_estimator.components.trainer.custom_job import executor
    from tfx_estimator.components.trainer.custom_job.service import VertexService

    monkeypatch.setattr(executor, "_POLL_SECONDS", 0.01)
    plan = make_plan(_load("deploy.vertex={}"))

    def launch(server: _Server) -> dict[str, Any]:
        monkeypatch.setattr(VertexService, "of", server.service)
        outputs = {"model": [standard_artifacts.Model()], "model_run": [standard_artifacts.ModelRun()]}
        for key, (artifact,) in outputs.items():
            artifact.uri = str(tmp_path / key)
        properties = {"custom_job": plan.to_json(), "pipeline_home": "gs://bucket/digits", "train_args": "{}"}
        executor.Executor().Do({}, outputs, properties)
        return outputs

    return launch


def test_the_step_creates_the_job_follows_it_and_takes_over_what_was_measured(launch, tmp_path):
    from tfx.types import standard_artifacts

    from tfx_estimator.components.trainer.custom_job import call

    # The service may be gone for a while.
    with _Server(["JOB_STATE_PENDING", "UNAVAILABLE", "JOB_STATE_RUNNING", "JOB_STATE_SUCCEEDED"]) as server:
        create = server.created.append

        def measure(request: Any) -> None:
            create(request)
            folder = str(tmp_path / "custom_job")
            _, outputs, properties = call.read_call(folder)
            assert properties == {"pipeline_home": "gs://bucket/digits", "train_args": "{}"}
            outputs["model_run"][0].set_float_custom_property("last_step", 600.0)
            outputs["model"][0].set_string_custom_property("comparable", "{}")
            call.write_measured(folder, outputs)

        server.created = type("Created", (list,), {"append": lambda self, request: measure(request)})()
        outputs = launch(server)
    assert outputs["model_run"][0].get_float_custom_property("last_step") == 600
    assert outputs["model"][0].get_string_custom_property("comparable") == "{}"
    assert isinstance(outputs["model"][0], standard_artifacts.Model)


def test_a_job_that_failed_is_told_in_the_services_words(launch):

    with _Server(["JOB_STATE_RUNNING", "JOB_STATE_FAILED"]) as server:
        with pytest.raises(TrainingError, match="JOB_STATE_FAILED: out of quota"):
            launch(server)
        (request,) = server.created
        assert request.parent == "projects/example-project/locations/europe-west4"
        # Another try makes another job.
        with pytest.raises(TrainingError):
            launch(server)
        assert len(server.created) == 2


def _hears(server: _Server, *then: Any) -> None:
    """Has each creation of a job, in turn, do something; the last of them all others."""

    def append(created: list[Any], request: Any) -> None:
        list.append(created, request)
        then[min(len(created), len(then)) - 1]()

    server.created = type("Created", (list,), {"append": append})()


def test_another_job_follows_on_one_that_lost_a_replica(launch, tmp_path):
    from tfx_estimator.components.trainer.custom_job import call

    folder = str(tmp_path / "custom_job")

    def lose() -> None:
        with contextlib.suppress(StoppedError), call.told(folder, "chief-0"):
            raise StoppedError("it was ended, as a worker has gone")

    def train() -> None:
        server.states = ["JOB_STATE_RUNNING", "JOB_STATE_SUCCEEDED"]
        (made := _measured()).set_float_custom_property("first_step", 300.0)
        call.write_measured(folder, {"model_run": [made]})

    with _Server(["JOB_STATE_FAILED"]) as server:
        _hears(server, lose, lose, train)
        made = launch(server)["model_run"][0]
    assert len(server.created) == 3
    assert made.get_float_custom_property("restarts") == 2
    history = json.loads(made.get_string_custom_property("history"))
    assert [(each["cause"], each["step"]) for each in history] == [("out of quota", 300)] * 2
    with _Server(["JOB_STATE_FAILED"]) as server:
        _hears(server, lose)
        with pytest.raises(TrainingError, match="JOB_STATE_FAILED: out of quota"):
            launch(server)
    assert len(server.created) == 1 + _load().trainer.distribution.max_restarts


def test_a_replicas_own_error_is_the_steps(launch, tmp_path):
    from tfx_estimator.components.trainer.custom_job import call

    folder = str(tmp_path / "custom_job")

    def fail() -> None:
        lost = TrainingError("the chief has gone")
        lost.retryable = True
        for replica, error in (("evaluator-0", lost), ("worker-0", UserCodeError("no such layer", todo="mend it"))):
            with contextlib.suppress(type(error)), call.told(folder, replica):
                raise error

    with _Server(["JOB_STATE_FAILED"]) as server:
        _hears(server, fail)
        with pytest.raises(UserCodeError, match="no such layer") as ended:
            launch(server)
    assert len(server.created) == 1
    assert ended.value.todo.startswith("mend it; it is of a replica of the custom job projects/example-project")


def test_a_step_that_is_tried_again_follows_the_job_that_goes_on(launch, tmp_path):
    from tfx_estimator.components.trainer.custom_job import call

    (tmp_path / "custom_job").mkdir()
    call.write_job(str(tmp_path / "custom_job"), "projects/example-project/locations/europe-west4/customJobs/7")
    with _Server(["JOB_STATE_RUNNING", "JOB_STATE_SUCCEEDED"]) as server:
        with pytest.raises(TrainingError, match="its chief wrote nothing"):
            launch(server)
        call.write_measured(str(tmp_path / "custom_job"), {"model_run": [_measured()]})
        outputs = launch(server)
    assert server.created == []
    assert outputs["model_run"][0].get_float_custom_property("last_step") == 600


@pytest.mark.parametrize("noted", [["JOB_STATE_CANCELLING", "JOB_STATE_CANCELLED"], ["UNAVAILABLE", "NOT_FOUND"]])
def test_a_job_that_was_cancelled_or_removed_is_waited_for_and_made_anew(launch, tmp_path, noted):
    from tfx_estimator.components.trainer.custom_job import call

    (tmp_path / "custom_job").mkdir()
    call.write_job(str(tmp_path / "custom_job"), "projects/example-project/locations/europe-west4/customJobs/7")
    with _Server([*noted, "JOB_STATE_FAILED"]) as server, pytest.raises(TrainingError, match="JOB_STATE_FAILED"):
        launch(server)
    assert len(server.created) == 1


def test_a_service_that_refuses_is_not_asked_again(launch):

    with _Server(["PERMISSION_DENIED"]) as server, pytest.raises(TrainingError, match="Vertex AI refuses: 403 no"):
        launch(server)


def test_a_job_whose_creation_was_not_answered_is_found(launch, tmp_path):
    from tfx_estimator.components.trainer.custom_job import call

    with _Server(["JOB_STATE_RUNNING", "JOB_STATE_RUNNING", "JOB_STATE_FAILED"], loses=True) as server:
        with pytest.raises(TrainingError, match="customJobs/1 ended with JOB_STATE_FAILED"):
            launch(server)
        assert len(server.created) == 1
        # Of a step that was killed before it could note the job.
        (tmp_path / "custom_job" / "job.json").unlink()
        server.states = ["JOB_STATE_RUNNING", "JOB_STATE_SUCCEEDED"]
        call.write_measured(str(tmp_path / "custom_job"), {"model_run": [_measured()]})
        launch(server)
        assert len(server.created) == 1


def test_a_step_that_is_ended_cancels_its_job(launch):
    from tfx_estimator.pipeline.ending.signals import SignalledError

    sent: list[int] = []

    def terminate() -> None:
        if not sent:
            sent.append(signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)

    with _Server(["JOB_STATE_RUNNING"], heard=terminate) as server:
        with pytest.raises(SignalledError):
            launch(server)
        assert server.cancelled == ["projects/example-project/locations/europe-west4/customJobs/1"]
