"""Sums up a profile without TensorBoard: where the time of the steps went, and which operations were the dearest.

Of a pipeline it tells how long the stages wait for each other: its operations bear their stage's name.

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

# As TensorFlow writes an operation: its name in the graph, and its kind.
_OPERATION = re.compile(r"^(?P<name>[\w.][\w./>-]*):(?P<kind>_?[A-Z]\w*)$")
# Threads of tf.data, and kinds of operations that only an input has.
_INPUT_THREAD = "tf_data"
_INPUT_KINDS = re.compile(r"Iterator|Dataset|Parse|Decode")
# What they call is told by itself.
_CALLERS = re.compile(r"PartitionedCall$|While$|If$|Case$")
# A call of a function, which tells what it calls; but of one that XLA has compiled nothing is told inside.
_CALL, _CALLED = "ExecutorState::ProcessAsync::Start", ("PartitionedCallOp", "FunctionRun", "ExecutorState::Process")
_FUNCTION = re.compile(r"PartitionedCall$")
_XLA = "XLA"
# The plane of a GPU has its kernels, as CUPTI records them.
_GPU, _KERNEL = "/device:GPU:", "kernel"
_NONE_RECORDED = (
    "None of the model's operations was recorded, so the shares say nothing. CUPTI records those of a GPU, and its "
    "library has to fit the driver: see the task's log."
)
_WAITS_FOR_INPUT = re.compile(r"^IteratorGetNext|^Iterator::Root$|:IteratorGetNext$")
_COMMUNICATION = re.compile(
    r"^Memcpy|Collective|AllReduce|NcclA|_?Send$|_?Recv$|HostSend|HostRecv|RecvTensor|RecvBuf|RpcRecv"
)
_OUTER = re.compile(r"^(while/body/_\d+/)+")
_PICOS = 1e12
_DEAREST = 10
_LEAST_TO_TELL = 0.2

_STAGE = re.compile(rf"(?:^|/){STAGE_SCOPE}(\d+)(?:_\d+)?/")

_Span = tuple[int, int]
_Spans = list[_Span]


def summarise(space: Any, steps: int, cluster: bool) -> dict[str, Any]:
    """Sums up a profile.

    Args:
        cluster: Is the task one of several that train together.

    Returns:
        `steps`, `seconds`; `shares` of that time, which add up to 1: `compute`, `input` (no operation ran, and the step
        waited for its batch), `communication` (the same for other devices and tasks) and `other` (the rest: Python, the
        runtime, and whatever else is waited for); `dearest`, operations with `name`, `kind`, `count`, `seconds` of all
        threads, and `share` of all operations' seconds, a function that XLA has compiled being one of the kind `XLA`;
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
        for (name, kind), (count, spent) in sorted(cost.items(), key=lambda item: -item[1][1])[:_DEAREST]
    ]
    advice = _advice(shares, cluster, any(kind == _XLA for _, kind in cost)) if cost else [_NONE_RECORDED]
    return {"steps": steps, "seconds": seconds, "shares": shares, "dearest": dearest, "advice": advice}


def to_text(task: str, summary: dict[str, Any]) -> str:
    """Writes the summary of `summarise` for a person."""
    shares = ", ".join(f"{name} {share:.0%}" for name, share in summary["shares"].items())
    lines = [f"profile of {task}: {summary['steps']} steps in {summary['seconds']:.3f} s: {shares}".removesuffix(": ")]
    for each in summary["dearest"]:
        spent = f"{each['share']:>5.0%} {1000 * each['seconds']:>10,.1f} ms {each['count']:>7,}x"
        lines.append(f"  {spent}  {each['kind']}  {each['name']}")
    return "\n".join([*lines, *(f"  {line}" for line in summary["advice"])])


def _compiled_calls(
    line: Any, names: Mapping[int, str], keys: Mapping[int, str]
) -> Iterator[tuple[str, tuple[int, int]]]:
    """The calls of functions that XLA has compiled, in one thread: they are computed in the call itself."""
    began = sorted(each.offset_ps for each in line.events if names[each.metadata_id] in _CALLED)
    for event in line.events:
        if names[event.metadata_id] != _CALL:
            continue
        told = {keys[each.metadata_id]: each.str_value or keys.get(each.ref_value, "") for each in event.stats}
        begin, end = event.offset_ps, event.offset_ps + event.duration_ps
        calls = bisect.bisect_right(began, end) > bisect.bisect_left(began, begin)
        if _FUNCTION.search(told.get("kernel_type", "")) and not calls:
            base = line.timestamp_ns * 1000
            yield told.get("name", ""), (base + begin, base + end)


def _of_kernel(event: Any, kernel: str, keys: Mapping[int, str]) -> tuple[str, str]:
    """The operation that a kernel of a GPU is part of, and its kind; the kernel's own name where none is told."""
    told = {keys[each.metadata_id]: each.str_value or keys.get(each.ref_value, "") for each in event.stats}
    found = _OPERATION.match(told.get("tf_op", ""))
    return (found["name"], found["kind"]) if found else (kernel, _KERNEL)


def _is_other(kind: str) -> bool:
    """Is it no operation of the model's own."""
    return bool(_INPUT_KINDS.search(kind) or _CALLERS.search(kind))


def _shares(seconds: float, compute: _Spans, waits: _Spans, sends: _Spans) -> dict[str, float]:
    """Each moment counts once: for an operation that runs, else for what is waited for."""
    if not seconds:
        return {"compute": 0.0, "input": 0.0, "communication": 0.0, "other": 1.0}
    busy = _length(compute)
    with_sends = _length([*compute, *sends])
    with_all = _length([*compute, *sends, *waits])
    parts = (busy, with_all - with_sends, with_sends - busy, max(seconds - with_all, 0.0))
    return dict(zip(("compute", "input", "communication", "other"), (each / seconds for each in parts)))


def _length(spans: Iterable[_Span]) -> float:
    """Returns the seconds that at least one of the spans, of picoseconds, covers."""
    return sum(end - begin for begin, end in _merged(spans)) / _PICOS


def _merged(spans: Iterable[_Span]) -> _Spans:
    """The spans in their order; those that overlap are one."""
    merged: _Spans = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _advice(shares: dict[str, float], cluster: bool, compiled: bool) -> Sequence[str]:
    advice = []
    if shares["input"] > _LEAST_TO_TELL:
        advice.append(
            "Steps wait for their input: let trainer.resident_megabytes hold the training files, and do less in the "
            "preprocessing_fn and in trainer.augment."
        )
    if cluster and shares["communication"] + shares["other"] > _LEAST_TO_TELL:
        advice.append(
            "Steps wait for other tasks: a larger trainer.global_batch_size sends the gradients less often; see "
            "docs/techniques.md, and try with `tfx-estimator bench strategies`."
        )
    elif shares["communication"] > _LEAST_TO_TELL:
        advice.append(
            "Steps wait for what the devices of this process send each other: a larger trainer.global_batch_size sends "
            "it less often; try other cross_device_ops and num_packs of trainer.distribution.train, or fewer devices."
        )
    if not cluster and shares["other"] > _LEAST_TO_TELL:
        advice.append(
            "Much of the time no operation runs: steps are short. A larger trainer.global_batch_size, or on the Keras "
            "paths trainer.steps_per_execution, gives each more to do."
        )
    # All other shares are small then.
    if not advice:
        advice.append("Most of the time is computed: what pays is a cheaper network, or more cores or devices.")
    if compiled:
        advice.append(
            "What XLA compiled is told as one operation: see trainer.xla: false for those that it is made of."
        )
    return advice


@dataclass(frozen=True)
class Bubble:
    """Of one step, from the first operation of a stage to the last one.

    Args:
        share: Part of the time of all stages in which they wait.
        busy: Part of the time in which each stage is at work.
        together: Part of the time in which at least two are.
    """

    seconds: float
    share: float
    busy: tuple[float, ...]
    together: float

    def tell(self, section: PipelineParallel) -> str:
        """Returns it in words."""
        busy = ", ".join(f"{each:.0%}" for each in self.busy)
        return (
            f"{section.stage_count} stages, {section.microbatches} microbatches: bubble {self.share:.2f}, of "
            f"{section.ideal_bubble:.2f} ideal; the stages were at work {busy} of the time, and two at once "
            f"{self.together:.0%}"
        )


def find_bubbles(space: Any) -> list[Bubble]:
    """Reads the bubbles from a profile.

    Returns:
        One for each step, the fastest first; none if no stage ran.
    """
    # The n-th time that an operation runs is in the n-th step.
    ran: dict[str, _Spans] = defaultdict(list)
    for name, span in _operations(space):
        ran[name].append(span)
    steps: dict[int, dict[int, _Spans]] = defaultdict(lambda: defaultdict(list))
    stages = sorted({_number(name) for name in ran})
    # As often as there are steps; what runs several times in one cannot be told apart so.
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
    """Seconds in which at least two stages are at work."""
    # Where a stage begins, or ceases, to be at work.
    edges = sorted(edge for spans in map(_merged, stages) for begin, end in spans for edge in ((begin, 1), (end, -1)))
    shared, at_work, since = 0, 0, 0
    for at, change in edges:
        shared += at - since if at_work > 1 else 0
        at_work, since = at_work + change, at
    return shared / _PICOS
