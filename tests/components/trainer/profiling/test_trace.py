"""What is made of a profile: shares of the time, the dearest operations, and what to change."""

from __future__ import annotations

import time

import pytest
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from tfx_estimator.components.trainer.profiling.trace import summarise, to_text

pytestmark = pytest.mark.unit

MILLISECOND = 10**9


def space(*lines: tuple[str, list[tuple[str, int, int]]]):
    """An XSpace of threads, each of events: name, begin and end in milliseconds."""
    made = xplane_pb2.XSpace()
    plane = made.planes.add(name="/host:CPU")
    for thread, events in lines:
        line = plane.lines.add(name=thread)
        for name, begin, end in events:
            number = len(plane.event_metadata) + 1
            plane.event_metadata[number].name = name
            span = {"offset_ps": begin * MILLISECOND, "duration_ps": (end - begin) * MILLISECOND}
            line.events.add(metadata_id=number, **span)
    return made


def test_each_moment_counts_once_and_the_dearest_come_first():
    found = summarise(
        space(
            ("python", [("EagerExecute", 0, 100)]),
            (
                "tf_Compute/1",
                [
                    ("ExecutorState::Process", 0, 60),
                    ("run:StatefulPartitionedCall", 0, 90),
                    ("while/body/_1/conv/Conv2D:_MklConv2D", 0, 40),
                ],
            ),
            # Half of it beside the convolution.
            (
                "tf_Compute/2",
                [("dense/MatMul:MatMul", 20, 60), ("reduce/CollectiveReduceV2:CollectiveReduceV2", 50, 70)],
            ),
            ("tf_data_iterator_get_next/3", [("IteratorGetNextOp::DoCompute", 30, 95), ("map/Mul:Mul", 0, 95)]),
        ),
        steps=4,
        cluster=True,
    )
    assert found["seconds"] == pytest.approx(0.1)
    assert found["shares"] == pytest.approx({"compute": 0.6, "communication": 0.1, "input": 0.25, "other": 0.05})
    assert [each["name"] for each in found["dearest"]] == ["conv/Conv2D", "dense/MatMul"]
    assert [each["share"] for each in found["dearest"]] == pytest.approx([0.5, 0.5])
    text = to_text("chief-0", found)
    assert text.startswith(
        "profile of chief-0: 4 steps in 0.100 s: compute 60%, input 25%, communication 10%, other 5%"
    )
    assert "Steps wait for their input: let trainer.resident_megabytes" in text


def test_what_is_not_computed_is_told_by_where_it_runs():
    idle = space(("tf_Compute/1", [("a/MatMul:MatMul", 0, 10)]), ("python", [("EagerExecute", 0, 100)]))
    assert "steps are short" in summarise(idle, 1, cluster=False)["advice"][0]
    assert "wait for other tasks" in summarise(idle, 1, cluster=True)["advice"][0]
    busy = space(("tf_Compute/1", [("a/MatMul:MatMul", 0, 100)]))
    assert "Most of the time is computed" in summarise(busy, 1, cluster=True)["advice"][0]
    assert summarise(space(), 1, cluster=False)["shares"]["other"] == 1.0


def test_devices_of_one_process_that_wait_for_each_other_are_told_and_nothing_of_compute():
    ran = [("a/MatMul:MatMul", 0, 20), ("all/NcclAllReduce:NcclAllReduce", 20, 95)]
    (advice,) = summarise(space(("tf_Compute/1", ran)), 1, cluster=False)["advice"]
    assert "what the devices of this process send each other" in advice
    (advice,) = summarise(space(("tf_Compute/1", ran)), 1, cluster=True)["advice"]
    assert "wait for other tasks" in advice


def test_what_xla_compiled_is_computed_and_a_plain_function_is_told_by_its_operations(tmp_path):
    """A real profile of a function that calls both."""

    def product(values):
        return tf.matmul(tf.matmul(values, values), values)

    # TensorFlow would put its operations into those of the caller.
    plain = tf.function(product, experimental_attributes={"_noinline": True})
    compiled = tf.function(product, jit_compile=True)

    @tf.function
    def both(values):
        return compiled(plain(values))

    values = tf.random.uniform([700, 700])
    both(values)
    tf.profiler.experimental.start(str(tmp_path))
    for _ in range(5):
        both(values)
    # A thread tells of an operation when it leaves it, which may be after the caller has got what it computed.
    time.sleep(1)
    tf.profiler.experimental.stop()
    (file,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    found = summarise(xplane_pb2.XSpace.FromString(file.read_bytes()), 5, cluster=False)
    # With oneDNN's kernels it is a _MklMatMul.
    ours = [(each["kind"].replace("_Mkl", ""), each["count"], each["seconds"]) for each in found["dearest"][:3]]
    assert sorted(each[:2] for each in ours) == [("MatMul", 5), ("MatMul", 5), ("XLA", 5)]
    assert min(seconds for _, _, seconds in ours) > 1e-3
    assert found["shares"]["compute"] > 0.5
    assert "What XLA compiled is told as one operation" in to_text("chief-0", found)


def test_what_a_gpu_computes_is_told_by_its_operations():
    made = space(("python", [("SessionRun", 0, 100)]))
    plane = made.planes.add(name="/device:GPU:0")
    line = plane.lines.add(name="Stream #14(Compute)")
    for number, text in enumerate(("tf_op", "conv/Conv2D:Conv2D"), 1):
        plane.stat_metadata[number].name = text
    for number, (kernel, begin, end) in enumerate((("sm90_xmma", 0, 40), ("fused", 40, 60), ("MemcpyH2D", 60, 90)), 1):
        plane.event_metadata[number].name = kernel
        event = line.events.add(metadata_id=number, offset_ps=begin * MILLISECOND)
        event.duration_ps = (end - begin) * MILLISECOND
        if kernel == "sm90_xmma":
            event.stats.add(metadata_id=1, ref_value=2)
    found = summarise(made, 1, cluster=False)
    assert found["shares"] == pytest.approx({"compute": 0.6, "communication": 0.3, "input": 0.0, "other": 0.1})
    assert [(each["name"], each["kind"]) for each in found["dearest"]] == [
        ("conv/Conv2D", "Conv2D"),
        ("fused", "kernel"),
    ]


def test_a_profile_without_operations_says_so_and_advises_nothing_else():
    # A GPU's, where CUPTI did not fit the driver: one H100 wrote the host's threads alone.
    found = summarise(space(("tf_gpu_private_0/1", [("ExecutorState::Process", 0, 90)])), 20, cluster=False)
    assert [line.partition(",")[0] for line in found["advice"]] == ["None of the model's operations was recorded"]
