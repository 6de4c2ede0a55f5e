"""TF_CONFIG in every dialect is read as the same cluster, and written as tf.estimator reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from tfx_estimator.components.trainer.cluster.tf_config import (
    Cluster,
    Task,
    TfConfig,
    from_slurm,
    read,
    resolve,
    tf_configs,
)
from tfx_estimator.pipeline.base.errors import DeclarationError

hosts = st.sampled_from(["localhost", "10.0.0.7", "[::1]", "job-worker-0.default.svc", "cmle-training-chief-ab12-0"])
MINE = {"task": {"type": "worker", "index": 0}}
PAIR = {"chief": ["a:1"], "worker": ["b:2"]}


@st.composite
def clusters(draw) -> Cluster:
    """A chief, up to four workers, up to three parameter servers, and at least two of them together."""
    worker, ps = draw(st.integers(0, 4)), draw(st.integers(0, 3))
    worker += worker + ps == 0
    ports = draw(st.lists(st.integers(1, 65535), min_size=1 + worker + ps, max_size=1 + worker + ps, unique=True))
    addresses = [f"{draw(hosts)}:{port}" for port in ports]
    return Cluster({"chief": addresses[:1], "worker": addresses[1 : 1 + worker], "ps": addresses[1 + worker :]})


@st.composite
def configs(draw) -> TfConfig:
    """Any task of any cluster, or its evaluator."""
    cluster = draw(clusters())
    return TfConfig(cluster, draw(st.sampled_from([*cluster.tasks, Task("evaluator", 0)])))


def written(config: TfConfig, **cluster: Any) -> dict[str, Any]:
    """The JSON of a TF_CONFIG; `cluster` adds to its cluster."""
    whole = json.loads(config.to_json())
    whole["cluster"].update(cluster)
    return whole


def master(config: TfConfig) -> dict[str, Any]:
    whole = written(config)
    whole["cluster"]["master"] = whole["cluster"].pop("chief")
    if config.task.type == "chief":
        whole["task"]["type"] = "master"
    return whole


def worker_0_is_chief(config: TfConfig) -> dict[str, Any]:
    whole = written(config)
    whole["cluster"]["worker"] = whole["cluster"].pop("chief") + whole["cluster"].get("worker", [])
    if config.task.type == "chief":
        whole["task"] = {"type": "worker", "index": 0}
    elif config.task.type == "worker":
        whole["task"]["index"] += 1
    return whole


def evaluator_in_cluster(config: TfConfig) -> dict[str, Any]:
    return written(config, evaluator=["elsewhere:3333"])


def index_is_text(config: TfConfig) -> dict[str, Any]:
    whole = written(config)
    whole["task"]["index"] = str(whole["task"]["index"])
    return whole


def empty_types(config: TfConfig) -> dict[str, Any]:
    none: dict[str, Any] = {"evaluator": [], "master": []}
    return written(config, **none)


def managed_training(config: TfConfig) -> dict[str, Any]:
    whole = written(config)
    whole["task"].update(cloud="w93a1503672d4dd09-ml", trial="1")
    return {**whole, "job": {"scale_tier": "CUSTOM", "region": "us-central1"}, "environment": "cloud"}


DIALECTS = [master, worker_0_is_chief, evaluator_in_cluster, index_is_text, empty_types, managed_training]


@given(configs())
def test_a_written_tf_config_is_read_back_unchanged(config):
    assert read(config.to_json()) == config
    assert read(config.to_json()).to_json() == config.to_json()


@pytest.mark.parametrize("dialect", DIALECTS)
@given(config=configs())
def test_a_cluster_is_the_same_in_every_dialect(dialect, config):
    assert read(json.dumps(dialect(config))) == config


@given(clusters(), st.booleans())
def test_every_task_gets_its_own_tf_config_of_the_same_cluster(cluster, evaluator):
    texts = tf_configs(cluster, evaluator)
    assert len(texts) == len(cluster.tasks) + evaluator
    for task, text in texts.items():
        assert read(text) == TfConfig(cluster, task)
        assert "evaluator" not in json.loads(text)["cluster"]
        assert text == json.dumps(json.loads(text), sort_keys=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"cluster": {}}',
        '{"cluster": null, "task": null}',
        '{"task": {"type": "worker", "index": 0}}',
        '{"task": {"type": "master", "index": "0"}, "environment": "cloud"}',
        '{"cluster": {"chief": ["127.0.0.1:2222"]}, "environment": "cloud", "task": {"type": "chief", "index": 0}}',
        '{"cluster": {"master": ["a:1"]}, "task": {"type": "master", "index": 0}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}',
    ],
)
def test_a_single_process_has_no_cluster(text):
    assert read(text) is None


@pytest.mark.parametrize(("more", "kind"), [({}, "evaluator"), ({"evaluator": ["b:2"]}, "chief")])
def test_a_lone_chief_with_an_evaluator_is_a_cluster(more, kind):
    text = json.dumps({"cluster": {"chief": ["a:1"], **more}, "task": {"type": kind, "index": 0}})
    assert read(text) == TfConfig(Cluster({"chief": ("a:1",)}), Task(kind, 0))


@pytest.mark.parametrize(
    ("whole", "message"),
    [
        ("{cluster: {}}", "it cannot be read"),
        ({"cluster": PAIR}, "it cannot be read"),
        ({"cluster": PAIR, "task": {"type": "worker"}}, "'index'"),
        ({"cluster": PAIR, "task": {"type": "boss", "index": 0}}, "no task type 'boss'"),
        ({"cluster": PAIR, "task": {"type": "worker", "index": 1}}, "worker-1, and the cluster has 1 chief, 1 worker"),
        (
            {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "chief", "index": 0}},
            "chief-0, and the cluster has 2",
        ),
        ({"cluster": {**PAIR, "evaluator": ["c:3"]}, "task": {"type": "evaluator", "index": 1}}, "evaluator-1"),
        ({"cluster": {**PAIR, "master": ["c:3"]}, **MINE}, "both `chief` and `master`"),
        ({"cluster": {**PAIR, "gpu": ["c:3"]}, **MINE}, "no task type 'gpu'"),
        ({"cluster": {**PAIR, "chief": ["a:1", "c:3"]}, **MINE}, "2 chiefs"),
        ({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}, "neither chief nor worker: 1 ps"),
        ({"cluster": {"chief": ["a:1"], "worker": "b:2"}, **MINE}, "cluster.worker is 'b:2'"),
        ({"task": {"type": "evaluator", "index": 0}}, "the task is evaluator-0, and there is no cluster"),
    ],
)
def test_a_wrong_tf_config_is_refused(whole, message):
    with refused(DeclarationError, message):
        read(whole if isinstance(whole, str) else json.dumps(whole))


@pytest.mark.parametrize("ps", [0, 1, 2])
@pytest.mark.parametrize("workers", [1, 3])
def test_an_estimator_reads_a_written_tf_config(monkeypatch, workers, ps):
    import tensorflow as tf

    addresses = [f"127.0.0.1:{port}" for port in range(4000, 4001 + workers + ps)]
    cluster = Cluster({"chief": addresses[:1], "worker": addresses[1 : 1 + workers], "ps": addresses[1 + workers :]})
    texts = tf_configs(cluster, evaluator=True)
    assert len(texts) == 2 + workers + ps
    for task, text in texts.items():
        monkeypatch.setenv("TF_CONFIG", text)
        config = tf.estimator.RunConfig()
        evaluates = task.type == "evaluator"
        assert (config.task_type, config.task_id) == (task.type, task.index)
        assert config.is_chief == (task.name == "chief-0")
        # An Estimator's evaluator counts no workers.
        assert config.num_worker_replicas == (0 if evaluates else 1 + workers)
        assert config.num_ps_replicas == (0 if evaluates else ps)
        if not evaluates:
            assert config.master == f"grpc://{cluster.addresses[task.type][task.index]}"
            assert config.global_id_in_cluster == cluster.tasks.index(task)


def slurm(
    rank: int, nodes: str = "node[08-09,11]", sizes: str = "2(x2),1", count: int = 5, **more: str
) -> dict[str, str]:
    """Returns the variables of `srun` that matter here."""
    return {
        "SLURM_JOB_ID": "4711",
        "SLURM_NTASKS": str(count),
        "SLURM_PROCID": str(rank),
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(count),
        "SLURM_STEP_NUM_NODES": "3",
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_TASKS_PER_NODE": sizes,
        **more,
    }


def test_slurm_makes_rank_0_the_chief():
    cluster = Cluster(
        {"chief": ["node08:8888"], "worker": ["node08:8889", "node09:8888", "node09:8889", "node11:8888"]}
    )
    for rank, task in enumerate(cluster.tasks):
        assert resolve(slurm(rank)) == TfConfig(cluster, task)


def test_slurm_agrees_with_tensorflows_resolver_if_that_works(monkeypatch):
    import tensorflow as tf

    for rank in range(5):
        for name, value in slurm(rank).items():
            monkeypatch.setenv(name, value)
        resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
            {"chief": 1, "worker": 4}, gpus_per_node=2, gpus_per_task=1, auto_set_gpu=False
        )
        config = from_slurm(slurm(rank))
        assert resolver.cluster_spec() == tf.train.ClusterSpec(
            {k: list(v) for k, v in config.cluster.addresses.items()}
        )
        assert resolver.get_task_info() == (config.task.type, config.task.index)


def test_slurm_nodes_keep_their_order():
    config = resolve(slurm(1, nodes="n[9-10]", sizes="1(x2)", count=2, SLURMD_NODENAME="n10"))
    assert config == TfConfig(Cluster({"chief": ["n9:8888"], "worker": ["n10:8888"]}), Task("worker", 0))


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"},  # an sbatch script outside of srun
        slurm(0, nodes="n1", sizes="1", count=1),
        {**slurm(0), "TF_CONFIG": "{}"},
    ],
)
def test_other_environments_have_no_cluster(environment):
    assert resolve(environment) is None


def test_tf_config_comes_before_slurm():
    config = TfConfig(Cluster({"chief": ["a:1"], "worker": ["b:2"]}), Task("worker", 0))
    assert resolve({**slurm(3), "TF_CONFIG": config.to_json()}) == config
    assert resolve({**slurm(3), "TF_CONFIG": ""}) == resolve(slurm(3))


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (slurm(5), "they contradict each other"),
        (slurm(0, sizes="2(x2)"), "they contradict each other"),
        (slurm(0, count=4), "they contradict each other"),
        (slurm(0, nodes="rack[0-1]node[0-3]"), "Invalid hostlist format"),
        (slurm(0, sizes="two"), "Invalid tasks-per-node list format"),
        ({**slurm(0), "SLURM_STEP_NUM_TASKS": "many"}, "SLURM_STEP_NUM_TASKS=many"),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, "SLURM_STEP_NODELIST=(not set)"),
        (slurm(1, SLURMD_NODENAME="node09"), "rank 1 on node09, and not on node08"),
    ],
)
def test_inconsistent_slurm_variables_are_refused(environment, message):
    with refused(DeclarationError, message, todo="srun"):
        resolve(environment)
