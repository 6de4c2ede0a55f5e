"""The Trainer as a custom job of Vertex AI: the request to the service, and each replica's role."""

from __future__ import annotations

import pytest
from google.cloud.aiplatform_v1.types import CustomJob, Scheduling

from tests.pipeline.platforms.vertex.vertex_ai import load_job
from tests.pipeline.runners.deployed import IMAGE
from tfx_estimator.components.trainer.cluster.tf_config import resolve
from tfx_estimator.pipeline.base.environment import release_variables
from tfx_estimator.pipeline.platforms.vertex.custom_job import REPLICA, Plan, make_plan
from tfx_estimator.pipeline.platforms.vertex.custom_jobs import variables
from tfx_estimator.pipeline.platforms.vertex.replica import tf_config
from tfx_estimator.pipeline.platforms.vertex.rules import step

CLUSTER = "trainer.distribution={train: {strategy: parameter_server, workers: 3, ps: 2}, evaluator: true}"
MACHINES = (
    "deploy.vertex={machine: {machine_type: n1-standard-8}, ps: {machine_type: n1-highmem-4, disk_gb: 200}, "
    "worker: {machine_type: n1-standard-16, accelerator: NVIDIA_TESLA_T4}, timeout_seconds: 7200}"
)
QUEUED = "deploy.vertex={machine: {machine_type: g2-standard-12, accelerator: NVIDIA_L4}, timeout_seconds: 7200}"


def test_each_process_of_the_distribution_is_a_replica_on_its_machine():
    plan = Plan.from_json(make_plan(load_job(CLUSTER, MACHINES)).to_json())
    job = CustomJob(plan.to_job("gs://bucket/step/custom_job", "gs://bucket/digits"))
    pools = job.job_spec.worker_pool_specs
    machines = [(pool.replica_count, pool.machine_spec.machine_type) for pool in pools]
    small = (1, "n1-standard-8")
    assert machines == [small, (2, "n1-standard-16"), (2, "n1-highmem-4"), small]
    assert [pool.machine_spec.accelerator_count for pool in pools] == [0, 1, 0, 0]
    assert pools[1].machine_spec.accelerator_type.name == "NVIDIA_TESLA_T4"
    assert [pool.disk_spec.boot_disk_size_gb for pool in pools] == [0, 0, 200, 0]
    for pool in pools:
        container = pool.container_spec
        assert container.image_uri == IMAGE
        assert [*container.command, *container.args][:3] == ["python", "-m", REPLICA]
        assert [*container.args][-4:-2] == ["--roles", "chief,worker,ps,evaluator"]
        assert {each.name: each.value for each in container.env} == {"EXAMPLE": "value", **release_variables()}
    assert job.job_spec.service_account == "trainer@example-project.iam.gserviceaccount.com"
    assert job.job_spec.scheduling.timeout.total_seconds() == 7200
    (step,) = {*job.labels} - {"team"}
    assert job.labels["team"] == "vision"
    # Each try has the same replicas, and no other step has any.
    assert dict(job.labels) == plan.to_job("gs://bucket/step/custom_job", "gs://elsewhere")["labels"]
    assert job.labels[step] != plan.to_job("gs://bucket/other/custom_job", "gs://bucket/digits")["labels"][step]


@pytest.mark.parametrize(
    ("distribution", "roles"),
    [
        ("{}", ("chief",)),
        ("{train: {strategy: multi_worker_mirrored, workers: 1}, evaluator: true}", ("chief", "evaluator")),
        ("{train: {strategy: multi_worker_mirrored, workers: 2}}", ("chief", "worker")),
        ("{train: {strategy: parameter_server, workers: 1, ps: 1}}", ("chief", "ps")),
    ],
)
def test_there_is_no_empty_pool_and_each_replica_finds_its_role(distribution, roles):
    plan = make_plan(load_job(f"trainer.distribution={distribution}", "deploy.vertex={}"))
    assert tuple(plan.pools) == roles
    counts = {role: pool["replica_count"] for role, pool in plan.pools.items()}
    addresses = [[f"host-{role}-{index}:2222" for index in range(count)] for role, count in counts.items()]
    for place, role in enumerate(roles):
        # Vertex AI's name of the third pool is not its role.
        environment = variables(addresses, place, 0)
        found = resolve({"TF_CONFIG": tf_config(environment, roles) or ""})
        if len(roles) == 1:
            assert found is None
            continue
        assert (found.task.type, found.task.index) == (role, 0)
        there = {kind: len(listed) for kind, listed in found.cluster.addresses.items()}
        assert there == {role: count for role, count in counts.items() if role != "evaluator"}


@pytest.mark.parametrize("option", ["standard", "spot", "flex_start"])
def test_the_request_names_the_scheduling_strategy(option):
    machines = QUEUED if option == "flex_start" else MACHINES
    plan = make_plan(load_job(CLUSTER, machines, f"deploy.vertex.scheduling={option}"))
    job = CustomJob(Plan.from_json(plan.to_json()).to_job("gs://bucket/step/custom_job", "gs://bucket/digits"))
    wanted = Scheduling.Strategy.STRATEGY_UNSPECIFIED if option == "standard" else Scheduling.Strategy[option.upper()]
    assert job.job_spec.scheduling.strategy == wanted
    assert job.job_spec.scheduling.timeout.total_seconds() == 7200
    # Set explicitly, as the service's default is a day: zero means no limit.
    assert ("max_wait_duration" in job.job_spec.scheduling) == (option == "flex_start")
    assert not job.job_spec.scheduling.max_wait_duration


def test_the_waiting_step_does_not_get_the_default_machine():
    common = ("deploy.nodes.Trainer=null", "deploy.nodes.default={cpu: 16, accelerator: NVIDIA_TESLA_T4, retries: 3}")
    trains, waits = (step(load_job(*common, *more).deploy, "Trainer") for more in ((), ("deploy.vertex={}",)))
    assert (trains.cpu, trains.accelerator, trains.retries) == (16, "NVIDIA_TESLA_T4", 3)
    assert (waits.cpu, waits.accelerator, waits.retries) == (None, None, 3)
    assert step(load_job(*common, "deploy.vertex={}").deploy, "Transform").cpu == 16
    assert step(load_job(*common, "deploy.vertex={}", "deploy.nodes.Trainer={cpu: 1}").deploy, "Trainer").cpu == 1
