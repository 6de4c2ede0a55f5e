"""Clusters of real processes: started here, or by somebody else."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tfx.types import artifact_utils

from tests.root import ROOT
from tfx_estimator.components.trainer.best.decision import Record
from tfx_estimator.components.trainer.cluster import plan
from tfx_estimator.components.trainer.cluster.ports import free_ports
from tfx_estimator.components.trainer.cluster.tf_config import read
from tfx_estimator.pipeline.base import cpus
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.distribution import Distribution

MWMS = {"strategy": "multi_worker_mirrored"}

RUN_FN = """
import json, os
import tensorflow as tf
from tensorflow.python.framework import test_util

def run_fn(fn_args):
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    allocator = os.environ["TF_GPU_ALLOCATOR"]
    print(f"this run_fn finds {threads} threads, oneDNN {test_util.IsMklEnabled()}, {allocator}")
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    tf.io.gfile.makedirs(fn_args.serving_model_dir)
    module = tf.Module()
    # No variable: each task's would be the chief's.
    serve = tf.function(lambda: {"task": tf.constant(task["type"])}, input_signature=[])
    module.serve = serve
    tf.saved_model.save(module, fn_args.serving_model_dir, signatures={"serving_default": serve})
"""


@dataclasses.dataclass
class _Tries:
    """What came of connecting to a cluster's ports from outside."""

    ports: set[int] = dataclasses.field(default_factory=set)
    reached: set[int] = dataclasses.field(default_factory=set)
    private: bool = False


@contextlib.contextmanager
def _trying_to_connect(root: Path) -> Iterator[_Tries]:
    """Connects to the ports of a training's tasks, as any process of this machine could, again and again."""
    tries, over = _Tries(), threading.Event()

    def go_on() -> None:
        while not over.wait(0.1):
            for path in root.glob("training/*/logs/chief-0.*.task.json"):
                with contextlib.suppress(ValueError):  # it is being written
                    task_spec = json.loads(path.read_text())
                    tries.private = bool(task_spec["network"])
                    addresses = itertools.chain(*json.loads(task_spec["tf_config"])["cluster"].values())
                    tries.ports |= {int(address.rpartition(":")[2]) for address in addresses}
            for port in tries.ports - tries.reached:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5):
                    tries.reached.add(port)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield tries
    finally:
        over.set()
        thread.join()


@pytest.mark.cluster
@pytest.mark.timeout(200)
def test_workers_evaluate_while_they_train_and_only_the_evaluator_exports(training, settings):
    with _trying_to_connect(training.root) as tries:
        runtime = {"threads": {"inter_op": 3}, "onednn": False, "gpu": {"thread_mode": "gpu_private"}}
        model, model_run = training.run(settings({**runtime, "distribution": {"train": MWMS, "evaluator": True}}))
    assert len(tries.ports) == 2
    # The servers listened: the tasks trained with each other.
    assert tries.reached == (set() if tries.private else tries.ports)
    folder = Path(model_run.uri)
    assert model_run.get_float_custom_property("last_step") == 60
    assert model_run.get_float_custom_property("eval_accuracy") > 0.9
    assert (model / "Format-Serving" / "saved_model.pb").exists()
    assert len(list((folder / "export" / "serving").iterdir())) == 1
    assert not list(folder.glob("tmp_worker_*"))
    tasks = {path.name.split(".")[0] for path in (folder / "logs").glob("*.log")}
    assert tasks == {"chief-0", "worker-0", "evaluator-0"}
    for log in (folder / "logs").glob("*.log"):
        said = [line for line in log.read_text().splitlines() if line.startswith("runtime: ")]
        assert said[:2] == ["runtime: ops at the same time: 3", "runtime: oneDNN: off"]
        assert said[2].startswith("runtime: GPUs: ")


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_cluster_of_this_machine_asks_no_proxy_for_its_own_tasks(training, settings, monkeypatch):
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    # gRPC would take it for localhost as well; nobody listens there.
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_ports(1)[0]}")
    distribution = {"train": {**MWMS, "timeout_seconds": 20}, "max_restarts": 0}
    model, model_run = training.run(settings({"distribution": distribution}, start_timeout=60.0))
    assert model_run.get_float_custom_property("last_step") == 60
    assert (model / "Format-Serving" / "saved_model.pb").exists()


@pytest.mark.cluster
@pytest.mark.timeout(200)
def test_a_run_fn_is_started_in_each_task_and_the_chiefs_model_is_published(training, settings, tmp_path):
    import tensorflow as tf

    module_file = tmp_path / "own_module.py"
    module_file.write_text(RUN_FN)
    runtime = {"threads": {"intra_op": 2}, "onednn": False, "gpu": {"allocator": "cuda_malloc_async"}}
    distribution = {"train": {**MWMS, "workers": 3}}
    declared = settings({**runtime, "module_file": str(module_file), "distribution": distribution})
    model, model_run = training.run(declared, module_file=str(module_file))
    logs = list((Path(model_run.uri) / "logs").glob("*.log"))
    assert len(logs) == 3
    assert all("this run_fn finds 2 threads, oneDNN False, cuda_malloc_async\n" in log.read_text() for log in logs)
    served = tf.saved_model.load(str(model / "Format-Serving")).signatures["serving_default"]()
    assert served["task"].numpy() == b"chief"
    assert not list(Path(model_run.uri).glob("tmp_worker_*"))


# As TFX's own examples have it: checkpoints in serving_model_dir; and data that end before the steps do.
SHORT = """
import tensorflow as tf

def trainer_fn(fn_args, schema):
    def input_fn():
        values = tf.constant([[0.0], [1.0], [2.0], [3.0]])
        data = tf.data.Dataset.from_tensor_slices((values, tf.constant([0, 0, 1, 1])))
        return data.repeat(45).map(lambda x, y: ({"x": x}, y)).batch(4)
    config = tf.estimator.RunConfig(fn_args.serving_model_dir, save_checkpoints_steps=20, save_summary_steps=None)
    column = tf.feature_column.numeric_column("x")
    estimator = tf.estimator.LinearClassifier([column], config=config)
    receiver = tf.estimator.export.build_raw_serving_input_receiver_fn({"x": tf.constant([[0.0]])})
    return {
        "estimator": estimator,
        "train_spec": tf.estimator.TrainSpec(input_fn, max_steps=1000),
        "eval_spec": tf.estimator.EvalSpec(
            input_fn, steps=None, exporters=[tf.estimator.FinalExporter("own", receiver)]),
    }
"""


@pytest.mark.cluster
@pytest.mark.timeout(240)
@pytest.mark.long
@pytest.mark.parametrize("evaluator", [False, True])
def test_data_that_end_early_end_the_training_of_each_task_and_nobody_trains_on(training, tmp_path, evaluator):
    from tfx_estimator.components.trainer.settings import Settings

    module_file = tmp_path / "short_module.py"
    module_file.write_text(SHORT)
    runtime = {"threads": {"inter_op": 3}, "profile": {"start_step": 10, "steps": 5}}
    settings = Settings(arguments={"distribution": {"train": MWMS, "evaluator": evaluator}, **runtime})
    model, model_run = training.run(settings, module_file=str(module_file))
    number = model_run.get_float_custom_property
    assert (number("last_step"), number("restarts")) == (45, 0)
    assert (model / "Format-Serving" / "saved_model.pb").exists()
    checkpoints = Path(model_run.uri) / "Format-Serving"
    assert {path.stem for path in checkpoints.glob("model.ckpt-*.index")} == {
        f"model.ckpt-{s}" for s in (0, 20, 40, 45)
    }
    assert not list(Path(model_run.uri).rglob("tmp_worker_*"))
    for task in ("chief-0", "worker-0"):
        (log,) = (Path(model_run.uri) / "logs").glob(f"{task}.*.log")
        assert "runtime: ops at the same time: 3\n" in log.read_text()
        assert f"profile of {task}: 5 steps in " in (Path(model_run.uri) / "profile" / task / "summary.txt").read_text()


@pytest.mark.cluster
@pytest.mark.long  # tests/e2e/test_join.py has it by the command line
@pytest.mark.timeout(240)
def test_where_tf_config_is_set_each_process_takes_its_place_in_that_cluster(training, settings, digits, tmp_path):
    result = _join(training, settings, digits, tmp_path)
    assert (result["first_step"], result["last_step"]) == (0, 60)
    assert result["eval_accuracy"] > 0.9
    # Only the chief publishes.
    assert (training.root / "model" / "1" / "Format-Serving" / "saved_model.pb").exists()
    assert not (training.root / "model" / "2").exists()
    # Made longer, it goes on.
    result = _join(training, settings, digits, tmp_path, executions=2, train_steps=100)
    assert (result["first_step"], result["last_step"]) == (60, 100)
    assert (training.root / "model" / "3" / "Format-Serving" / "saved_model.pb").exists()


# The evaluation of the last step ends when the cluster has long since done it; that of an earlier one comes in time.
LATE = """
import os, time
import tensorflow as tf

class InTime(tf.compat.v1.train.SessionRunHook):
    def __init__(self, folder):
        self.record = os.path.join(folder, "evaluations.json")

    def before_run(self, context):
        return tf.compat.v1.train.SessionRunArgs(tf.compat.v1.train.get_global_step())

    def after_run(self, context, values):
        while 25 < values.results < 35 and not os.path.exists(self.record):
            time.sleep(0.1)

class Late(tf.compat.v1.train.SessionRunHook):
    def end(self, session):
        if session.run(tf.compat.v1.train.get_global_step()) == 40:
            time.sleep(10)

def model_fn(features, labels, mode, params, config):
    logits = tf.compat.v1.layers.dense(tf.reshape(features["image"], [-1, 784]), 10)
    outputs = {"probabilities": tf.nn.softmax(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions=outputs, export_outputs={
            "serving_default": tf.estimator.export.PredictOutput(outputs)})
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.01)
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    accuracy = tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, -1))
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops={"accuracy": accuracy},
                                      training_hooks=[InTime(config.model_dir)], evaluation_hooks=[Late()])
"""


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.timeout(240)
def test_an_evaluator_that_ends_training_when_all_steps_are_done_is_not_waited_for(
    training, settings, digits, tmp_path, monkeypatch
):
    """It leaves the export to the cluster, which does not know of it when it has done the last step."""
    (tmp_path / "late_model.py").write_text(LATE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    section = {
        "model": "late_model:model_fn",
        "train_steps": 40,
        # Of the two checkpoints that are evaluated the second is no improvement.
        "early_stopping": {"metric": "loss", "patience": 1, "min_delta": 100},
        "distribution": {"train": MWMS, "evaluator": True, "start_delay_secs": 0, "throttle_secs": 1},
    }
    result = _join(training, settings, digits, tmp_path, stall_timeout=60.0, **section)
    assert result["last_step"] == 40
    assert result["eval_accuracy"] > 0.1
    assert (training.root / "model" / "1" / "Format-Serving" / "saved_model.pb").exists()
    assert [each.step for each in Record.load(str(training.root / "model_run" / "1"))] == [20, 40]


SLOW = (
    LATE.replace(
        "class Late(tf.compat.v1.train.SessionRunHook):",
        """class Late(tf.compat.v1.train.SessionRunHook):
    def before_run(self, context):
        return tf.compat.v1.train.SessionRunArgs(tf.compat.v1.train.get_global_step())

    def after_run(self, context, values):
        if values.results == 40:
            time.sleep(1.2)
""",
    )
    .replace("time.sleep(10)", "pass")
    .replace("training_hooks=[InTime(config.model_dir)], ", "")
)


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.timeout(240)
def test_the_last_evaluation_may_take_longer_than_stall_timeout(training, settings, digits, tmp_path, monkeypatch):
    (tmp_path / "slow_model.py").write_text(SLOW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    distribution = {"train": MWMS, "evaluator": True, "start_delay_secs": 0, "throttle_secs": 1}
    section = {"model": "slow_model:model_fn", "train_steps": 40, "eval_steps": 30, "eval_batch_size": 10}
    result = _join(training, settings, digits, tmp_path, stall_timeout=20.0, distribution=distribution, **section)
    assert result["last_step"] == 40
    assert (training.root / "model" / "1" / "Format-Serving" / "saved_model.pb").exists()
    assert not list((training.root / "model_run" / "1").glob("evaluator.json*"))


def _join(training, settings, digits, tmp_path, executions=0, stall_timeout=600.0, **trainer):
    """Trains with processes that somebody else starts; returns what the chief's training came to."""
    section = {"distribution": {"train": MWMS}, **trainer}
    chief, worker, evaluator = (f"localhost:{port}" for port in free_ports(3))
    # The dialect in which worker 0 is the chief.
    cluster = {"worker": [chief, worker]}
    tasks = [("worker", 0), ("worker", 1)]
    if section["distribution"].get("evaluator"):
        cluster["evaluator"] = [evaluator]
        tasks.append(("evaluator", 0))
    runs = []
    for number, (kind, index) in enumerate(tasks):
        job = tmp_path / f"job-{number}.json"
        values = {"root": str(training.root), "inputs": artifact_utils.jsonify_artifact_dict(digits)}
        declared = settings(section, start_timeout=120.0, stall_timeout=stall_timeout)
        values |= {"settings": dataclasses.asdict(declared), "executions": executions + number}
        job.write_text(json.dumps(values))
        text = json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})
        runs.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.faults.train", str(job)],
                cwd=ROOT,
                env={**os.environ, "TF_CONFIG": text},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    said = [run.communicate(timeout=200) for run in runs]
    assert {run.returncode for run in runs} == {0}, said
    return json.loads(said[0][0].splitlines()[-1])


@pytest.mark.unit
def test_each_process_that_trains_gets_cores_of_its_own(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(cpus, "cpu_quota", lambda: None)
    distribution = Distribution.parse_obj({"train": MWMS, "evaluator": True})
    chief, worker, evaluator = plan.local_cluster(distribution, 1)
    assert (chief.cpus, worker.cpus, evaluator.cpus) == ((0, 1), (2, 3), ())
    assert (chief.threads, evaluator.threads) == (None, 1)
    many = plan.local_cluster(Distribution.parse_obj({"train": {**MWMS, "workers": 5}}), 1)
    assert {(task_spec.cpus, task_spec.threads) for task_spec in many} == {((), 1)}


@pytest.mark.unit
def test_the_processes_of_a_container_share_its_quota_and_no_cores_of_others(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(cpus, "cpu_quota", lambda: 7.5)
    distribution = Distribution.parse_obj({"train": MWMS, "evaluator": True})
    tasks = {each.name: (each.cpus, each.threads) for each in plan.local_cluster(distribution, 1)}
    assert tasks == {"chief-0": ((), 4), "worker-0": ((), 4), "evaluator-0": ((), 1)}
    many = plan.local_cluster(Distribution.parse_obj({"train": {**MWMS, "workers": 9}}), 1)
    assert {(task_spec.cpus, task_spec.threads) for task_spec in many} == {((), 1)}


@pytest.mark.unit
def test_the_addresses_of_a_cluster_are_loopback_and_fresh(monkeypatch):
    distribution = Distribution.parse_obj({"train": {"strategy": "parameter_server", "workers": 3, "ps": 2}})
    first, second = (plan.local_cluster(distribution, attempt) for attempt in (1, 2))
    assert [task_spec.name for task_spec in first] == ["chief-0", "worker-0", "worker-1", "ps-0", "ps-1"]
    addresses = [_addresses(task_spec[0]) for task_spec in (first, second)]
    assert all(address.startswith("localhost:") for address in addresses[0])
    assert len(addresses[0]) == 5
    assert not addresses[0] & addresses[1]


@pytest.mark.unit
def test_gpus_are_shared_out():
    train = {**MWMS, "devices": {"gpu": 2}}
    task_spec = plan.local_cluster(Distribution.parse_obj({"train": train}), 1)
    assert [each.gpus for each in task_spec] == [(0, 1), (2, 3)]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("train", "evaluator", "task", "word"),
    [
        ({"strategy": "one_device"}, False, "worker", "strategy is one_device"),
        ({"strategy": "parameter_server"}, False, "worker", "0 parameter servers"),
        ({**MWMS, "workers": 3}, False, "worker", "workers is 3, and the cluster trains with 2"),
        (MWMS, False, "evaluator", "evaluator is false"),
    ],
)
def test_a_cluster_that_is_not_the_declared_one_is_refused(train, evaluator, task, word):
    cluster = {"chief": ["a:1"], "worker": ["b:1"]}
    config = read(json.dumps({"cluster": cluster, "task": {"type": task, "index": 0}}))
    distribution = Distribution.parse_obj({"train": train, "evaluator": evaluator})
    with pytest.raises(DeclarationError, match=word):
        plan.own_place(config, distribution, 1)


def _addresses(task_spec):
    cluster = json.loads(task_spec.tf_config)["cluster"]
    return {address for addresses in cluster.values() for address in addresses}
