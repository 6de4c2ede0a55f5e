"""What is made of a profile: shares of the time, the dearest operations, and what to change."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.unit

MILLISECOND = 10**9


def space(*lines: tuple[str, list[tuple[str, int, int]]]):
    """An XSpace of threads, each of events: name, begin and end in milliseconds."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

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
    from tfx_estimator.components.trainer.profiling.trace import summarise, to_text

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
    from tfx_estimator.components.trainer.profiling.trace import summarise

    idle = space(("tf_Compute/1", [("a/MatMul:MatMul", 0, 10)]), ("python", [("EagerExecute", 0, 100)]))
    assert "steps are short" in summarise(idle, 1, cluster=False)["advice"][0]
    assert "wait for other tasks" in summarise(idle, 1, cluster=True)["advice"][0]
    busy = space(("tf_Compute/1", [("a/MatMul:MatMul", 0, 100)]))
    assert "Most of the time is computed" in summarise(busy, 1, cluster=True)["advice"][0]
    assert summarise(space(), 1, cluster=False)["shares"]["other"] == 1.0
