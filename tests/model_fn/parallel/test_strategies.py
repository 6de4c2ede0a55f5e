"""The declared strategies, each built in a new process, like in the tasks of a training."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.components.trainer.conftest import Codes
from tfx_estimator.model_fn.parallel.strategies import make_strategy
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.distribution import TrainStrategy

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

BUILD = """
import json, sys
import tensorflow as tf
from tfx_estimator.model_fn.parallel.strategies import configure_devices, make_strategy
from tfx_estimator.pipeline.config.distribution import Strategy, TrainStrategy
from tfx_estimator.pipeline.base.errors import DeclarationError

def describe(section):
    try:
        strategy = make_strategy(section)
    except DeclarationError as error:
        return {"error": str(error), "exit_code": error.exit_code}
    if strategy is None:
        return None
    with strategy.scope():
        weight = tf.Variable(1.0)
    def gradient():
        context = tf.distribute.get_replica_context()
        own = tf.cast(context.replica_id_in_sync_group + 1, tf.float32)
        return context.all_reduce("sum", [own, own * 10, own * 100])
    sums = tf.function(lambda: strategy.run(gradient))() if strategy.num_replicas_in_sync > 1 else []
    if len(sums):
        sums = [float(strategy.experimental_local_results(each)[0]) for each in sums]
    ops = getattr(strategy.extended, "_cross_device_ops", None)
    return {
        "class": type(strategy).__name__,
        "replicas": strategy.num_replicas_in_sync,
        "devices": [device.rpartition("/")[2] for device in strategy.extended.worker_devices],
        "weight": type(weight).__name__,
        "ops": type(ops).__name__,
        "packs": getattr(ops, "_num_packs", None),
        "sums": sums,
    }

sections = [(TrainStrategy if kind == "train" else Strategy)(**values) for kind, values in json.loads(sys.argv[1])]
configure_devices(*sections)
print(json.dumps([describe(section) for section in sections]))
"""


def _run(codes: Codes, code: str, *arguments: Any) -> list[Any]:
    """Builds strategies in one process, and returns their descriptions or errors."""
    *_, found = codes.answers("-c", code, json.dumps(arguments), CUDA_VISIBLE_DEVICES="")
    return found


def test_mirrored_adds_up_with_the_declared_operation(codes):
    hierarchical = {"strategy": "mirrored", "devices": {"cpu": 2}, "cross_device_ops": "hierarchical_copy"}
    train, evaluate = _run(codes, BUILD, ("train", {**hierarchical, "num_packs": 2}), ("eval", {}))
    assert train == {
        "class": "MirroredStrategy",
        "replicas": 2,
        "devices": ["device:CPU:0", "device:CPU:1"],
        "weight": "MirroredVariable",
        "ops": "HierarchicalCopyAllReduce",
        "packs": 2,
        "sums": [3.0, 30.0, 300.0],
    }
    # TensorFlow's own choice is the fastest for one device.
    assert evaluate is None


def test_strategies_that_use_some_of_the_devices(codes):
    central, one, subset, too_many, no_gpu, no_tpu, listed, listed_one, beyond, no_listed_gpu = _run(
        codes,
        BUILD,
        ("train", {"strategy": "central_storage", "devices": {"cpu": 2}}),
        ("eval", {"devices": {"cpu": 1}}),
        ("eval", {"strategy": "mirrored", "devices": {"cpu": 1}}),
        ("eval", {"strategy": "mirrored", "devices": {"gpu": 2}}),
        ("eval", {"devices": {"gpu": 1}}),
        ("train", {"strategy": "tpu", "tpu": "local"}),
        # The last of them determines the number of logical CPUs: 4.
        ("train", {"strategy": "mirrored", "devices": {"cpu": [3, 0]}}),
        ("eval", {"devices": {"cpu": [1]}}),
        ("eval", {"strategy": "mirrored", "devices": {"gpu": [1, 3]}}),
        ("eval", {"devices": {"gpu": [0]}}),
    )
    # The class of TensorFlow 1 is the one that an Estimator accepts.
    found = [central[name] for name in ("class", "replicas", "weight")]
    assert found == ["CentralStorageStrategyV1", 2, "AggregatingVariable"]
    assert (one["class"], one["devices"]) == ("OneDeviceStrategy", ["device:CPU:0"])
    assert (subset["class"], subset["devices"]) == ("MirroredStrategy", ["device:CPU:0"])
    for refused, count in ((too_many, 2), (no_gpu, 1)):
        assert f"asks for {count} GPU devices" in refused["error"]
        assert "at most 0, which this process finds on this machine" in refused["error"]
        assert f"lower or remove `devices: {{gpu: {count}}}`" in refused["error"]
        assert refused["exit_code"] == 2
    assert (listed["class"], listed["replicas"]) == ("MirroredStrategy", 2)
    assert (listed["devices"], listed["sums"]) == (["device:CPU:3", "device:CPU:0"], [3.0, 30.0, 300.0])
    assert (listed_one["class"], listed_one["devices"]) == ("OneDeviceStrategy", ["device:CPU:1"])
    for refused, indices in ((beyond, "[1, 3]"), (no_listed_gpu, "[0]")):
        assert f"asks for the GPU devices {indices}" in refused["error"]
        assert "at most 0, counted from 0, which this process finds" in refused["error"]
        assert f"change or remove `devices: {{gpu: {indices}}}`" in refused["error"]
    assert "trainer.distribution.train.tpu: 'local' cannot be used: TPUs not found" in no_tpu["error"]


# A machine with GPUs in its lists of devices.
ON_GPUS = """
import json, os, sys
import tensorflow as tf
from tfx_estimator.model_fn.parallel.strategies import configure_devices, make_strategy
from tfx_estimator.pipeline.config.distribution import TrainStrategy
from tfx_estimator.pipeline.base.errors import DeclarationError

physical, logical = tf.config.list_physical_devices, tf.config.list_logical_devices

def show(task, gpus, values):
    tf.config.list_physical_devices = lambda kind: [None] * gpus if kind == "GPU" else physical(kind)
    tf.config.list_logical_devices = lambda kind: [None] * gpus if kind == "GPU" else logical(kind)
    cluster = {"chief": ["localhost:1"], "worker": ["localhost:2"], "ps": ["localhost:3"]}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": task, "index": 0}} if task else {})
    section = TrainStrategy.parse_obj(values)
    configure_devices(section)
    try:
        strategy = make_strategy(section)
    except DeclarationError as error:
        return str(error)
    return [device.rpartition("/")[2] for device in strategy.extended.worker_devices]

print(json.dumps([show(*case) for case in json.loads(sys.argv[1])]))
"""


def test_the_declared_gpus_are_used_and_missing_ones_refused_in_every_process_but_a_parameter_server(codes):
    several = [{"strategy": name, "devices": {"gpu": 2}} for name in ("multi_worker_mirrored", "parameter_server")]
    one, subset, first, beyond, of_chief, of_worker, by_list, enough, of_ps = _run(
        codes,
        ON_GPUS,
        (None, 4, {"devices": {"gpu": [1]}}),
        (None, 4, {"strategy": "mirrored", "devices": {"gpu": [1, 3]}}),
        (None, 4, {"strategy": "central_storage", "devices": {"gpu": 2}}),
        (None, 3, {"strategy": "mirrored", "devices": {"gpu": [1, 3]}}),
        ("chief", 0, several[0]),
        ("worker", 1, several[1]),
        ("chief", 1, {**several[0], "devices": {"gpu": [5, 7]}}),
        # Its process sees only those two, under other indices.
        ("chief", 2, {**several[1], "devices": {"gpu": [5, 7]}}),
        ("ps", 0, several[1]),
    )
    assert (one, subset, first) == (
        ["device:GPU:1"],
        ["device:GPU:1", "device:GPU:3"],
        ["device:GPU:0", "device:GPU:1"],
    )
    assert "asks for the GPU devices [1, 3]" in beyond
    assert "at most 3, counted from 0, which this process finds" in beyond
    for refused, highest in ((of_chief, 0), (of_worker, 1), (by_list, 1)):
        assert "asks for 2 GPU devices in each training process" in refused
        assert f"at most {highest}" in refused
    # The patched lists do not determine what TensorFlow does with them.
    assert isinstance(enough, list)
    assert isinstance(of_ps, list)


@pytest.fixture
def silent() -> Iterator[list[str]]:
    """Addresses that never respond: one accepts connections, the other does not."""
    with ExitStack() as stack:
        addresses = []
        for host, waiting in (("127.0.0.2", 0), ("127.0.0.3", 3)):
            listener = stack.enter_context(socket.socket())
            listener.bind((host, 0))
            listener.listen(0)
            addresses.append(f"{host}:{listener.getsockname()[1]}")
            # The full backlog of a listener that never accepts makes the kernel drop further connections.
            for _ in range(waiting):
                other = stack.enter_context(socket.socket())
                other.setblocking(False)
                other.connect_ex(listener.getsockname())
        yield addresses


def test_a_tpu_that_does_not_answer_is_one_clear_error_and_no_hang(silent, monkeypatch):
    names = [f"grpc://{address}" for address in (*silent, "127.0.0.1:1")]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(_refuse_tpu, names))
    for name, answer in zip(names, answers):
        assert f"trainer.distribution.train.tpu: '{name}' cannot be used: {name} did not answer within 5 s" in answer
    # Where TensorFlow looks up the addresses of named TPUs.
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    # Without the scheme.
    assert "'127.0.0.1:8470' cannot be used: <urlopen error [Errno 111]" in _refuse_tpu("127.0.0.1:8470")


def _refuse_tpu(name: str) -> str:
    """Declares an unavailable TPU; TensorFlow is not initialised before the error."""
    start = time.monotonic()
    with pytest.raises(DeclarationError) as caught:
        make_strategy(TrainStrategy(strategy="tpu", tpu=name))
    assert time.monotonic() - start < 15
    assert caught.value.exit_code == 2
    assert caught.value.todo
    return str(caught.value)
