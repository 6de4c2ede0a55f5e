"""Which tests may run beside each other in the three processes of `make test`.

Two compute. Each queue below is kept to one process, which does its tests in turn: their fixtures are made once. The
first two begin; whichever process is done takes the next, and the files of all other tests follow, one by one. The
third process takes what waits most of its time, and nothing else: there are two cores.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

WAITS = "waits"
# Queue -> where its tests are; the longest begin.
QUEUES = {
    # For servers, signals, deadlines; and for processes that do one thing after another.
    WAITS: (
        "tests/pipeline/platforms/",
        "tests/pipeline/base/ending/",
        "tests/pipeline/run/test_join.py",
        "tests/pipeline/run/test_tracking.py",
        "tests/pipeline/run/test_watcher.py",
        "tests/pipeline/runners/test_stored_metadata.py",
        "tests/components/trainer/supervisor/",
        "tests/components/trainer/test_training_claim.py",
        "tests/wheel/",
        "tests/techniques/",
    ),
    "trainings": (
        "tests/components/trainer/",
        "tests/components/tuner/test_executor.py",
        "tests/components/evaluator/",
    ),
    "pipelines": ("tests/e2e/", "tests/store/", "tests/pipeline/commands/test_bench.py"),
    "equalities": ("tests/equivalence/", "tests/faults/", "tests/model_fn/"),
    "conversions": ("tests/pipeline/convert/",),
}


def queue(nodeid: str) -> str:
    """Returns the queue that a test stands in: one of the above, or its file's."""
    file = nodeid.partition("::")[0]
    return next((name for name, places in QUEUES.items() if file.startswith(places)), file)


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    queues: dict[str, list[pytest.Item]] = {name: [] for name in QUEUES}
    for item in items:
        queues.setdefault(queue(item.nodeid), []).append(item)
    return [item for each in queues.values() for item in each]


class Scheduler(LoadScopeScheduling):
    """Gives a process a queue, and the next one when that comes to its end."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return queue(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        is_third, there = self.nodes[2:] == [node], WAITS in self.workqueue
        if is_third and not there:
            node.shutdown()
            return
        if there:
            self.workqueue.move_to_end(WAITS, last=not is_third)
        super()._assign_work_unit(node)
