"""Summarises a profile without TensorBoard: where the time of the steps went, and the most expensive operations.

For a pipeline it finds how long the stages wait for each other: its operations have their stage's name.

Source: https://www.tensorflow.org/guide/profiler; the file is an `XSpace` of `tsl/profiler/protobuf/xplane.proto`.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfx_estimator.pipeline.config.parallel import STAGE_SCOPE, PipelineParallel

# TensorFlow's name of an operation's event: name in the graph, and kind.
_OPERATION = re.compile(r"^(?P<name>[\w.][\w./>-]*):(?P<kind>_?[A-Z]\w*)$")
# Threads of tf.data, and kinds of operations that occur only in the input.
_INPUT_THREAD = "tf_data"
_INPUT_KINDS = re.compile(r"Iterator|Dataset|Parse|Decode")
# The operations that they call have events of their own.
_CALLERS = re.compile(r"PartitionedCall$|While$|If$|Case$")
# A call of a function, and the events inside it; there are none in a function that XLA has compiled.
_CALL, _CALLED = "ExecutorState::ProcessAsync::Start", ("PartitionedCallOp", "FunctionRun", "ExecutorState::Process")
_FUNCTION = re.compile(r"PartitionedCall$")
_XLA = "XLA"
# The plane of a GPU holds the kernels that CUPTI records.
_GPU, _KERNEL = "/device:GPU:", "kernel"
_NONE_RECORDED = (
    "None of the model's operations was recorded, so the shares mean nothing. CUPTI records those of a GPU, and its "
    "library must match the driver: see the task's log."
)
_WAITS_FOR_INPUT = re.compile(r"^IteratorGetNext|^Iterator::Root$|:IteratorGetNext$")
_COMMUNICATION = re.compile(
    r"^Memcpy|Collective|AllReduce|NcclA|_?Send$|_?Recv$|HostSend|HostRecv|RecvTensor|RecvBuf|RpcRecv"
)
_OUTER = re.compile(r"^(while/body/_\d+/)+")
_PICOS = 1e12
_MOST_LISTED = 10
_LEAST_SHARE = 0.2

_STAGE = re.compile(rf"(?:^|/){STAGE_SCOPE}(\d+)(?:_\d+)?/")

_Span = tuple[int, int]
_Spans = list[_Span]


def summarise(space: Any, steps: int, cluster: bool) -> dict[str, Any]:
    """Summarises a profile.

    Args:
        cluster: True if several tasks train together.

    Returns:
        `steps`, `seconds`; `shares` of that time, which add up to 1: `compute`, `input` (no operation ran, and the step
        waited for its batch), `communication` (the same for other devices and tasks) and `other` (Python, the runtime,
        and other waits); `dearest`, the most expensive operations with `name`, `kind`, `count`, `seconds` of all
        threads, and `share` of all operations' seconds; a function that XLA has compiled is one of the kind `XLA`;
        `advice`, lines.
    """
    compute: _Spans = []
    waits: _Spans = []
    sends: _Spans = []
    whole: _Spans = []
    cost: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0])
    for plane in space.planes:
        if not plane.name.startswith("/host") and not plane.name.startswith("/device"):
            continue
        names = {number: each.name for number, each in plane.event_metadata.items()}
        keys = {number: each.name for number, each in plane.stat_metadata.items()}
        for line in plane.lines:
            is_input = line.name.startswith(_INPUT_THREAD)
            base = line.timestamp_ns * 1000
            ran: list[tuple[str, str, tuple[int, int]]] = []
            for event in line.events:
                name = names[event.metadata_id]
                span = (base + event.offset_ps, base + event.offset_ps + event.duration_ps)
                whole.append(span)
                if _WAITS_FOR_INPUT.search(name):
                    waits.append(span)
                elif _COMMUNICATION.search(name):
                    sends.append(span)
                elif plane.name.startswith(_GPU):
                    ran.append((*_of_kernel(event, name, keys), span))
                elif not is_input and (found := _OPERATION.match(name)) and not _is_other(found["kind"]):
                    ran.append((found["name"], found["kind"], span))
            if not is_input:
                ran += [(name, _XLA, span) for name, span in _compiled_calls(line, names, keys)]
            for name, kind, span in ran:
                compute.append(span)
                entry = cost[_OUTER.sub("", name), kind]
                entry[0] += 1
                entry[1] += (span[1] - span[0]) / _PICOS
    seconds = (max(end for _, end in whole) - min(start for start, _ in whole)) / _PICOS if whole else 0.0
    shares = _shares(seconds, compute, waits, sends)
    total = sum(each[1] for each in cost.values()) or 1.0
    dearest = [
        {"name": name, "kind": kind, "count": count, "seconds": spent, "share": spent / total}
        for (name, kind), (count, spent) in sorted(cost.items(), key=lambda item: -item[1][1])[:_MOST_LISTED]
    ]
    advice = _advice(shares, cluster, any(kind == _XLA for _, kind in cost)) if cost else [_NONE_RECORDED]
    return {"steps": steps, "seconds": seconds, "shares": shares, "dearest": dearest, "advice": advice}


def to_text(task: str, summary: dict[str, Any]) -> str:
    """Formats the summary of `summarise` as text."""
    shares = ", ".join(f"{name} {share:.0%}" for name, share in summary["shares"].items())
    lines = [f"profile of {task}: {summary['steps']} steps in {summary['seconds']:.3f} s: {shares}".removesuffix(": ")]
    for each in summary["dearest"]:
        spent = f"{each['share']:>5.0%} {1000 * each['seconds']:>10,.1f} ms {each['count']:>7,}x"
        lines.append(f"  {spent}  {each['kind']}  {each['name']}")
    return "\n".join([*lines, *(f"  {line}" for line in summary["advice"])])


def _compiled_calls(
    line: Any, names: Mapping[int, str], keys: Mapping[int, str]
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yields the calls of functions that XLA has compiled, in one thread, with their spans."""
    began = sorted(each.offset_ps for each in line.events if names[each.metadata_id] in _CALLED)
    for event in line.events:
        if names[event.metadata_id] != _CALL:
            continue
        stats = _stats(event, keys)
        begin, end = event.offset_ps, event.offset_ps + event.duration_ps
        calls = bisect.bisect_right(began, end) > bisect.bisect_left(began, begin)
        if _FUNCTION.search(stats.get("kernel_type", "")) and not calls:
            base = line.timestamp_ns * 1000
            yield stats.get("name", ""), (base + begin, base + end)


def _of_kernel(event: Any, kernel: str, keys: Mapping[int, str]) -> tuple[str, str]:
    """Returns the name and kind of the operation that launched a GPU's kernel; else the kernel's own."""
    found = _OPERATION.match(_stats(event, keys).get("tf_op", ""))
    return (found["name"], found["kind"]) if found else (kernel, _KERNEL)


def _stats(event: Any, keys: Mapping[int, str]) -> dict[str, str]:
    return {keys[each.metadata_id]: each.str_value or keys.get(each.ref_value, "") for each in event.stats}


def _is_other(kind: str) -> bool:
    """Returns True for an operation of the input, or one that calls others."""
    return bool(_INPUT_KINDS.search(kind) or _CALLERS.search(kind))


def _shares(seconds: float, compute: _Spans, waits: _Spans, sends: _Spans) -> dict[str, float]:
    """Attributes each moment once: to a running operation, else to a wait."""
    if not seconds:
        return {"compute": 0.0, "input": 0.0, "communication": 0.0, "other": 1.0}
    busy = _length(compute)
    with_sends = _length([*compute, *sends])
    with_all = _length([*compute, *sends, *waits])
    parts = (busy, with_all - with_sends, with_sends - busy, max(seconds - with_all, 0.0))
    return dict(zip(("compute", "input", "communication", "other"), (each / seconds for each in parts)))


def _length(spans: Iterable[_Span]) -> float:
    """Returns the seconds that at least one of the spans, in picoseconds, covers."""
    return sum(end - begin for begin, end in _merged(spans)) / _PICOS


def _merged(spans: Iterable[_Span]) -> _Spans:
    """Returns the spans in order, with overlapping ones merged."""
    merged: _Spans = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _advice(shares: dict[str, float], cluster: bool, compiled: bool) -> Sequence[str]:
    advice = []
    if shares["input"] > _LEAST_SHARE:
        advice.append(
            "Steps wait for their input: raise trainer.resident_megabytes to hold the training files, and do less in "
            "the preprocessing_fn and in trainer.augment."
        )
    if cluster and shares["communication"] + shares["other"] > _LEAST_SHARE:
        advice.append(
            "Steps wait for other tasks: a larger trainer.global_batch_size sends the gradients less often; see "
            "docs/techniques.md, and try with `tfx-estimator bench strategies`."
        )
    elif shares["communication"] > _LEAST_SHARE:
        advice.append(
            "Steps wait for transfers between the devices of this process: a larger trainer.global_batch_size makes "
            "them rarer; try other cross_device_ops and num_packs of trainer.distribution.train, or fewer devices."
        )
    if not cluster and shares["other"] > _LEAST_SHARE:
        advice.append(
            "Much of the time no operation runs: steps are short. A larger trainer.global_batch_size, or on the Keras "
            "paths trainer.steps_per_execution, gives each more to do."
        )
    # All other shares are small then.
    if not advice:
        advice.append("Most of the time is spent in computation: use a cheaper network, or more cores or devices.")
    if compiled:
        advice.append(
            "A function compiled by XLA is shown as one operation: set trainer.xla: false to see its operations."
        )
    return advice


@dataclass(frozen=True)
class Bubble:
    """The waits of one step, from the first operation of a stage to the last one.

    Args:
        share: Fraction of all stages' time in which they wait.
        busy: Fraction of the time in which each stage works.
        together: Fraction of the time in which at least two stages work.
    """

    seconds: float
    share: float
    busy: tuple[float, ...]
    together: float

    def describe(self, section: PipelineParallel) -> str:
        """Returns a description."""
        busy = ", ".join(f"{each:.0%}" for each in self.busy)
        return (
            f"{section.stage_count} stages, {section.microbatches} microbatches: bubble {self.share:.2f}, of "
            f"{section.ideal_bubble:.2f} ideal; the stages worked {busy} of the time, and two at once "
            f"{self.together:.0%}"
        )


def find_bubbles(space: Any) -> list[Bubble]:
    """Reads the bubbles from a profile.

    Returns:
        One for each step, the fastest first; none if no stage ran.
    """
    # An operation's n-th run belongs to the n-th step.
    ran: dict[str, _Spans] = defaultdict(list)
    for name, span in _operations(space):
        ran[name].append(span)
    steps: dict[int, dict[int, _Spans]] = defaultdict(lambda: defaultdict(list))
    stages = sorted({_number(name) for name in ran})
    # Only operations that run once per step, the usual count: others cannot be assigned to steps.
    usual = Counter(map(len, ran.values())).most_common(1)
    for name, spans in ran.items():
        if len(spans) == usual[0][0]:
            for step, span in enumerate(sorted(spans)):
                steps[step][_number(name)].append(span)
    bubbles = []
    for by_stage in steps.values():
        spans = [span for each in by_stage.values() for span in each]
        whole = _length([(min(begin for begin, _ in spans), max(end for _, end in spans))])
        if whole:
            busy = tuple(_length(by_stage[stage]) / whole for stage in stages)
            together = _length_of_two(by_stage.values()) / whole
            bubbles.append(Bubble(whole, 1 - sum(busy) / len(busy), busy, together))
    return sorted(bubbles, key=lambda each: each.seconds)


def _operations(space: Any) -> Iterator[tuple[str, _Span]]:
    for plane in space.planes:
        if not plane.name.startswith(("/host", "/device")):
            continue
        names = {number: each.name for number, each in plane.event_metadata.items() if _STAGE.search(each.name)}
        for line in plane.lines:
            base = line.timestamp_ns * 1000
            for event in line.events:
                if event.metadata_id in names:
                    begin = base + event.offset_ps
                    yield names[event.metadata_id], (begin, begin + event.duration_ps)


def _number(name: str) -> int:
    found = _STAGE.search(name)
    assert found is not None
    return int(found[1])


def _length_of_two(stages: Iterable[_Spans]) -> float:
    """Returns the seconds in which at least two stages work."""
    # Where a stage begins or ceases to work.
    edges = sorted(edge for spans in map(_merged, stages) for begin, end in spans for edge in ((begin, 1), (end, -1)))
    shared, working, since = 0, 0, 0
    for at, change in edges:
        shared += at - since if working > 1 else 0
        working, since = working + change, at
    return shared / _PICOS
