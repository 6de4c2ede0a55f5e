"""Reads what the steps of a training did from its profile, its graph and its tasks' logs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

# Eight steps of each task, after the graph is built.
PROFILED = ("--set", "trainer.profile.start_step=20", "--set", "trainer.profile.steps=8")
STEPS = 8
_OPERATION = re.compile(r"^([\w.][\w./>-]*):(?:_MklNative|_Mkl)?(_?[A-Z]\w*)$")


def count_operations(run: Path) -> Counter[tuple[str, str]]:
    """Counts the chief's runs of each operation in the profiled steps, by name and kind."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    (file,) = run.glob("profile/chief-0/plugins/profile/*/*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(file.read_bytes())
    counts: Counter[tuple[str, str]] = Counter()
    for plane in space.planes:
        names = {number: each.name for number, each in plane.event_metadata.items()}
        events = (names[event.metadata_id] for line in plane.lines for event in line.events)
        counts.update((found[1], found[2]) for found in map(_OPERATION.match, events) if found)
    return counts


def read_graph(run: Path) -> Counter[tuple[str, str, str]]:
    """Returns kind, dtype and device of each operation in an Estimator's training graph."""
    import tensorflow as tf
    from google.protobuf import text_format

    graph = text_format.Parse((run / "graph.pbtxt").read_text(), tf.compat.v1.GraphDef())
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    kinds = ((node.op, node.attr["T"].type, node.device) for node in nodes if "T" in node.attr)
    return Counter((op, tf.as_dtype(dtype).name if dtype else "", device) for op, dtype, device in kinds)


def read_logs(run: Path) -> str:
    return "".join(file.read_text() for file in sorted((run / "logs").rglob("*.log")))
