"""The plan of tasks: their addresses, and the GPUs and CPUs of each."""

from __future__ import annotations

import json
import os

import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.cluster import plan
from tfx_estimator.components.trainer.cluster.plan import visible_gpus
from tfx_estimator.components.trainer.cluster.tf_config import read
from tfx_estimator.components.trainer.executor import _warn_of_idle_gpus
from tfx_estimator.pipeline.base import cpus
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import runtime
from tfx_estimator.pipeline.config.distribution import Devices, Distribution

MWMS = {"strategy": "multi_worker_mirrored"}
SERVED = {"strategy": "parameter_server"}

# Prints a task's environment instead of training.
TASK = """
import json, os, sys, types
from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
from tfx_estimator.components.trainer.task import paths, start
job, task_spec, gpus = sys.argv[1:]
gpus = json.loads(gpus)
TaskSpec("chief", 0, 1, gpus=gpus and tuple(gpus), supervisor_pid=os.getppid()).save(task_spec)
path = types.SimpleNamespace(run=lambda context: print("visible:", os.environ.get("CUDA_VISIBLE_DEVICES")))
paths.path_of = lambda job: path
sys.exit(start.main([job, task_spec]))
"""


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Fakes the machine's GPUs, as the driver lists them, and this process's allotment of them."""

    def make(gpus: int, allotted: str | None = None) -> None:
        folder = tmp_path / "gpus"
        for index in range(gpus):
            (folder / f"0000:0{index}:00.0").mkdir(parents=True)
        monkeypatch.setattr(runtime, "_GPUS", str(folder))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if allotted is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", allotted)

    return make


def _seen(train, evaluate=None):
    """Returns the GPUs that each task sees; with a section `evaluate` there is an evaluator too."""
    section = {"train": train, "eval": evaluate or {}, "evaluator": evaluate is not None}
    return {task_spec.name: task_spec.gpus for task_spec in plan.local_cluster(Distribution.parse_obj(section), 1)}


@pytest.mark.parametrize("gpus", [0, 2, 8])
def test_declared_gpus_are_assigned_without_checking_the_machine(machine, gpus):
    machine(gpus)
    assert _seen({**MWMS, "workers": 3, "devices": {"gpu": 2}}) == {
        "chief-0": (0, 1),
        "worker-0": (2, 3),
        "worker-1": (4, 5),
    }
    served = {**SERVED, "devices": {"gpu": 1}}
    assert _seen(served, {"devices": {"gpu": 1}}) == {
        "chief-0": (0,),
        "worker-0": (1,),
        "ps-0": (),
        "evaluator-0": (2,),
    }
    # Otherwise it would take memory of the others' GPUs.
    assert _seen(served, {})["evaluator-0"] == ()
    assert _seen(served, {"devices": {"cpu": 1}})["evaluator-0"] == ()


def test_a_list_names_the_gpus_of_the_one_process_that_trains(machine):
    machine(8)
    alone = {**MWMS, "workers": 1, "devices": {"gpu": [1, 3]}}
    assert _seen(alone) == {"chief-0": (1, 3)}
    two = {"strategy": "mirrored", "devices": {"gpu": 2}}
    assert _seen(alone, two) == {"chief-0": (1, 3), "evaluator-0": (4, 5)}


@pytest.mark.parametrize(
    ("train", "evaluate", "which"),
    [
        ({**MWMS, "devices": {"gpu": [1, 3]}}, None, "train"),
        ({**SERVED, "devices": {"gpu": [0]}}, {}, "train"),
        ({**MWMS, "workers": 1}, {"devices": {"gpu": [1]}}, "eval"),
    ],
)
def test_a_list_of_gpus_is_refused_for_several_processes(train, evaluate, which):
    with pytest.raises(DeclarationError, match=rf"{which}\.devices\.gpu lists the GPUs of one process"):
        _seen(train, evaluate)


@pytest.mark.parametrize(
    ("gpus", "allotted", "expected"),
    [
        (0, None, [None, None, None]),
        (4, None, [(0,), (1,), (2,)]),
        (8, None, [(0, 1), (2, 3), (4, 5)]),
        # An allotment decides, whatever the machine has.
        (8, "4,5,6", [(0,), (1,), (2,)]),
        (8, "GPU-8932f937, MIG-1c2e,6", [(0,), (1,), (2,)]),
        (8, "4,5,-1,6", [(), (), ()]),
        (8, "NoDevFiles", [None, None, None]),
    ],
)
def test_undeclared_gpus_are_divided_evenly(machine, gpus, allotted, expected):
    machine(gpus, allotted)
    assert list(_seen({**MWMS, "workers": 3}).values()) == expected


def test_an_evaluator_gets_its_declared_gpus_before_the_rest_is_divided(machine):
    machine(4)
    declared = {"strategy": "mirrored", "devices": {"gpu": 2}}
    assert _seen(SERVED, declared) == {"chief-0": (0,), "worker-0": (1,), "ps-0": (), "evaluator-0": (2, 3)}
    assert _seen({**SERVED, "workers": 3}, declared)["evaluator-0"] == (0, 1)
    assert _seen(SERVED, {}) == {"chief-0": (0, 1), "worker-0": (2, 3), "ps-0": (), "evaluator-0": ()}


def test_gpus_that_the_installed_tensorflow_cannot_use_give_a_warning(machine, monkeypatch, caplog):
    def warnings(section: dict[str, object]) -> int:
        caplog.clear()
        _warn_of_idle_gpus(Devices.parse_obj(section))
        return sum("is installed without CUDA" in each.message for each in caplog.records)

    machine(0)
    assert warnings({}) == 0
    machine(2)
    # The locked development TensorFlow can.
    assert warnings({}) == 0
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: False)
    assert (warnings({}), warnings({"gpu": 1}), warnings({"cpu": 1})) == (1, 1, 0)


def test_a_declared_cpu_hides_the_gpus(machine):
    machine(4)
    on_cpu = {**MWMS, "devices": {"cpu": 1}}
    # No other task uses the GPUs.
    assert _seen(on_cpu, {}) == {"chief-0": (), "worker-0": (), "evaluator-0": None}
    assert _seen(on_cpu, {"devices": {"cpu": 1}})["evaluator-0"] == ()


@pytest.mark.parametrize(
    ("task", "devices", "expected"),
    [
        ("worker", {"gpu": [1, 3]}, (1, 3)),
        ("chief", {"gpu": 2}, (0, 1)),
        ("worker", {"cpu": 1}, ()),
        ("worker", {}, None),
        ("ps", {"gpu": 2}, ()),
        ("ps", {}, ()),
        ("evaluator", {"gpu": 2}, None),
    ],
)
def test_in_an_external_cluster_each_process_takes_the_declared_gpus_of_its_machine(task, devices, expected):
    cluster = {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}
    config = read(json.dumps({"cluster": cluster, "task": {"type": task, "index": 0}}))
    distribution = Distribution.parse_obj({"train": {**SERVED, "devices": devices}, "evaluator": True})
    assert [task_spec.gpus for task_spec in plan.own_place(config, distribution, 1)] == [expected]


@pytest.mark.parametrize(
    ("gpus", "allotted", "expected"),
    [
        ((2, 3), None, "2,3"),
        ((), None, ""),
        ((2, 3), "4,5,6,7", "6,7"),
        ((1, 0), "GPU-a, MIG-b", "MIG-b,GPU-a"),
        ((0, 1), "4,-1,5", "4"),
        ((), "4,5", ""),
    ],
)
def test_indices_count_within_the_allotment(gpus, allotted, expected):
    environment = {} if allotted is None else {"CUDA_VISIBLE_DEVICES": allotted}
    assert visible_gpus(gpus, environment) == expected


@pytest.mark.parametrize(
    ("gpus", "allotted", "expected"),
    [(None, None, None), (None, "4,5", "4,5"), ((), "4,5", ""), ((), None, ""), ((1,), "4,5", "5"), ((1,), None, "1")],
)
def test_a_task_sees_its_assigned_gpus(codes, tmp_path, gpus, allotted, expected):
    task_spec, job = tmp_path / "chief-0.task_spec.json", tmp_path / "job.json"
    job.write_text(json.dumps({"inputs": "{}", "outputs": "{}", "exec_properties": {}, "training_dir": ""}))
    arguments = [str(job), str(task_spec), json.dumps(gpus)]
    assert codes.call(TASK, arguments, (), {"CUDA_VISIBLE_DEVICES": allotted}) == 0, codes.output
    assert codes.result == f"visible: {expected}"


@pytest.mark.parametrize(
    ("train", "cluster", "workers", "servers"),
    [
        (MWMS, {"worker": ["a:1", "b:1", "c:1"]}, 3, 0),
        (SERVED, {"chief": ["a:1"], "worker": ["b:1", "c:1", "d:1"], "ps": ["e:1", "f:1", "g:1"]}, 4, 3),
        (MWMS, None, 2, 0),
        (SERVED, None, 2, 1),
        ({"strategy": "mirrored"}, None, 1, 0),
    ],
)
def test_the_number_of_tasks_is_read_from_the_actual_cluster(train, cluster, workers, servers):
    task = {"type": "worker", "index": 1}
    place = read(json.dumps({"cluster": cluster, "task": task})) if cluster else None
    declared = Distribution.parse_obj({"train": train})
    resolved = plan.resolve_distribution(declared, place)
    assert (resolved.train.worker_count, resolved.train.ps_count) == (workers, servers)
    # A separate declaration with the same values.
    again = Distribution.parse_obj(json.loads(json.dumps(resolved.dict())))
    assert plan.resolve_distribution(again, place) == resolved


@pytest.mark.parametrize(
    ("cores", "quota", "workers", "shares"),
    [
        (4, None, 2, [((0, 1), None), ((2, 3), None)]),
        (4, None, 5, [((), 1)] * 5),
        # A container's quota may allow a few of many cores.
        (64, 7.5, 2, [((), 4)] * 2),
        (64, 7.5, 9, [((), 1)] * 9),
    ],
)
def test_training_processes_share_cores_or_a_containers_quota(monkeypatch, cores, quota, workers, shares):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(cpus, "cpu_quota", lambda: quota)
    distribution = Distribution.parse_obj({"train": {**MWMS, "workers": workers}, "evaluator": True})
    tasks = [(each.cpus, each.threads) for each in plan.local_cluster(distribution, 1)]
    assert tasks == [*shares, ((), 1)]


def test_the_addresses_of_a_cluster_are_loopback_with_new_ports():
    distribution = Distribution.parse_obj({"train": {**SERVED, "workers": 3, "ps": 2}})
    first, second = (plan.local_cluster(distribution, attempt) for attempt in (1, 2))
    assert [task_spec.name for task_spec in first] == ["chief-0", "worker-0", "worker-1", "ps-0", "ps-1"]
    addresses = []
    for specs in (first, second):
        cluster = json.loads(specs[0].tf_config)["cluster"]
        addresses.append({address for each in cluster.values() for address in each})
    assert all(address.startswith("localhost:") for address in addresses[0])
    assert len(addresses[0] | addresses[1]) == 10


@pytest.mark.parametrize(
    ("train", "evaluator", "task", "word"),
    [
        ({"strategy": "one_device"}, False, "worker", "strategy is one_device"),
        (SERVED, False, "worker", "0 parameter servers"),
        ({**MWMS, "workers": 3}, False, "worker", "workers is 3, and the cluster trains with 2"),
        (MWMS, False, "evaluator", "evaluator is false"),
    ],
)
def test_a_cluster_that_differs_from_the_declared_one_is_refused(train, evaluator, task, word):
    config = read(json.dumps({"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": task, "index": 0}}))
    distribution = Distribution.parse_obj({"train": train, "evaluator": evaluator})
    with pytest.raises(DeclarationError, match=word):
        plan.own_place(config, distribution, 1)
