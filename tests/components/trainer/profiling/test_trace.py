"""The summary of a profile: shares of the time, the most expensive operations, and advice."""

from __future__ import annotations

import time

import pytest
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from tfx_estimator.components.trainer.profiling.trace import find_bubbles, summarise, to_text
from tfx_estimator.pipeline.config.parallel import PipelineParallel

MILLISECOND = 10**9


def space(*lines: tuple[str, list[tuple[str, int, int]]]):
    """Makes an XSpace of threads with events: name, begin and end in milliseconds."""
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


def test_each_moment_counts_once_and_the_most_expensive_come_first():
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
            # Half of it in parallel with the convolution.
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
    assert "Steps wait for their input: raise trainer.resident_megabytes" in text


IDLE = [("tf_Compute/1", [("a/MatMul:MatMul", 0, 10)]), ("python", [("EagerExecute", 0, 100)])]
BUSY = [("tf_Compute/1", [("a/MatMul:MatMul", 0, 100)])]
SENDS = [("tf_Compute/1", [("a/MatMul:MatMul", 0, 20), ("all/NcclAllReduce:NcclAllReduce", 20, 95)])]
# A GPU's profile with a CUPTI that did not match the driver: one H100 wrote only the host's threads.
UNRECORDED = [("tf_gpu_private_0/1", [("ExecutorState::Process", 0, 90)])]


@pytest.mark.parametrize(
    ("lines", "cluster", "advice"),
    [
        (IDLE, False, "steps are short"),
        (IDLE, True, "wait for other tasks"),
        (BUSY, True, "Most of the time is spent in computation"),
        (SENDS, False, "transfers between the devices of this process"),
        (SENDS, True, "wait for other tasks"),
        (UNRECORDED, False, "None of the model's operations was recorded"),
    ],
)
def test_the_advice_for_other_time_depends_on_the_thread(lines, cluster, advice):
    (text,) = summarise(space(*lines), 1, cluster=cluster)["advice"]
    assert advice in text
    assert summarise(space(), 1, cluster=False)["shares"]["other"] == 1.0


def test_a_call_compiled_by_xla_is_computation_from_its_begin_to_its_end():
    events = [("a/MatMul:MatMul", 0, 30), ("ExecutorState::ProcessAsync::Start", 20, 80)]
    made = space(("tf_Compute/1", events), ("python", [("EagerExecute", 0, 100)]))
    (plane,) = made.planes
    for number, (key, text) in enumerate({"kernel_type": "StatefulPartitionedCall", "name": "compiled"}.items(), 1):
        plane.stat_metadata[number].name = key
        plane.lines[0].events[1].stats.add(metadata_id=number, str_value=text)
    found = summarise(made, 1, cluster=False)
    assert found["shares"]["compute"] == pytest.approx(0.8)
    assert [(each["kind"], each["seconds"]) for each in found["dearest"]] == [
        ("XLA", pytest.approx(0.06)),
        ("MatMul", pytest.approx(0.03)),
    ]


def test_xla_code_counts_as_computation_and_a_function_as_its_operations(tmp_path):
    """A real profile of a function that calls both."""

    def product(values):
        return tf.matmul(tf.matmul(values, values), values)

    # Otherwise TensorFlow would inline its operations into the caller.
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
    # A thread records an operation at its end, which may be after the caller has its result.
    time.sleep(1)
    tf.profiler.experimental.stop()
    (file,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    found = summarise(xplane_pb2.XSpace.FromString(file.read_bytes()), 5, cluster=False)
    # With oneDNN's kernels it is a _MklMatMul.
    ours = [(each["kind"].replace("_Mkl", ""), each["count"], each["seconds"]) for each in found["dearest"][:3]]
    assert sorted(each[:2] for each in ours) == [("MatMul", 5), ("MatMul", 5), ("XLA", 5)]
    assert min(seconds for _, _, seconds in ours) > 1e-3
    # More than both products of the function: they ran one after the other, though a busy machine waits in between, and
    # notes the end of one when the next has begun.
    of_function = sum(seconds for kind, _, seconds in ours if kind != "XLA")
    of_xla = sum(seconds for kind, _, seconds in ours if kind == "XLA")
    assert found["shares"]["compute"] * found["seconds"] > of_function + of_xla / 2
    assert "A function compiled by XLA is shown as one operation" in to_text("chief-0", found)


def test_a_gpus_kernels_are_named_by_their_operations():
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


def test_the_bubble_is_the_waiting_time_of_stages_within_steps():
    first = [
        ("while/body/_1/pipeline_stage0/conv/Conv2D:Conv2D", 0, 2),
        ("while/body/_1/pipeline_stage0_1/conv/Conv2D:Conv2D", 2, 4),
        ("while/body/_1/pipeline_stage0_2/gradients/pipeline_stage0/conv/Conv2D_grad/Conv2D:Conv2D", 6, 8),
    ]
    second = [
        ("while/body/_1/pipeline_stage1/dense/MatMul:MatMul", 2, 5),
        ("while/body/_1/pipeline_stage1/dense/BiasAdd:BiasAdd", 3, 6),
        ("SGD/update:ResourceApplyGradientDescent", 9, 10),
    ]
    # The same with a late last operation.
    *later, (last, begin, _) = [(name, begin + 100, end + 100) for name, begin, end in first]
    later.append((last, begin, 110))
    beside = [(name, begin + 100, end + 100) for name, begin, end in second]
    found = find_bubbles(space(("one", first), ("other", second), ("one", later), ("other", beside)))
    assert [each.seconds for each in found] == [pytest.approx(0.008), pytest.approx(0.01)]
    (found, _) = found
    assert found.busy == (pytest.approx(6 / 8), pytest.approx(4 / 8))
    assert found.share == pytest.approx(1 - (6 + 4) / 16)
    assert found.together == pytest.approx(2 / 8)
    section = PipelineParallel(stages=2, microbatches=4)
    assert found.describe(section) == (
        "2 stages, 4 microbatches: bubble 0.38, of 0.20 ideal; the stages worked 75%, 50% of the time, and two "
        "at once 25%"
    )
    assert find_bubbles(space(("one", [("dense/MatMul:MatMul", 0, 1)]))) == []
