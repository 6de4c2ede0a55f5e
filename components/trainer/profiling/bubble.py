"""How long the stages of a pipeline wait for each other: a profile tells, whose operations bear their stage's name."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tfx_estimator.components.trainer.profiling.trace import length
from tfx_estimator.model_fn.parallel.pipelining import SCOPE
from tfx_estimator.pipeline.config.parallel import PipelineParallel

_STAGE = re.compile(rf"(?:^|/){SCOPE}(\d+)(?:_\d+)?/")
_Span = tuple[int, int]


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
    ran: dict[str, list[_Span]] = defaultdict(list)
    for name, span in _operations(space):
        ran[name].append(span)
    steps: dict[int, dict[int, list[_Span]]] = defaultdict(lambda: defaultdict(list))
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
        whole = length([(min(begin for begin, _ in spans), max(end for _, end in spans))])
        if whole:
            busy = tuple(length(by_stage[stage]) / whole for stage in stages)
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


def _length_of_two(stages: Iterable[list[_Span]]) -> float:
    """Seconds in which at least two stages are at work."""
    # Where a stage begins or ceases to be at work, its own overlapping spans taken as one.
    edges = []
    for spans in stages:
        until = None
        for begin, end in sorted(spans):
            if until is None or begin > until:
                edges += [(begin, 1)] if until is None else [(until, -1), (begin, 1)]
                until = end
            until = max(until, end)
        if until is not None:
            edges.append((until, -1))
    shared, at_work, since = [], 0, 0
    for at, change in sorted(edges):
        if at_work > 1:
            shared.append((since, at))
        at_work, since = at_work + change, at
    return length(shared)
