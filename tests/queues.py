"""Distributes the tests among the three processes of `make test`.

The tests of a queue below run one after another in one process, so their fixtures are made once. A process that has
finished a queue takes the next one; the files of all other tests follow, one by one. The third process starts with the
tests that mostly wait, because there are two cores.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

WAITS = "waits"
# Queue -> paths of its tests; the longest queues first.
QUEUES = {
    # For servers, signals, deadlines and sequential processes.
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
    "conversions": ("tests/pipeline/convert/", "tests/model_fn/bridge/"),
}


def queue(nodeid: str) -> str:
    """Returns a test's queue: one of the above, or its file."""
    file = nodeid.partition("::")[0]
    places = {place: name for name, of_one in QUEUES.items() for place in of_one if file.startswith(place)}
    return places[max(places, key=len)] if places else file


def by_queue(items: list[pytest.Item]) -> list[pytest.Item]:
    queues: dict[str, list[pytest.Item]] = {name: [] for name in QUEUES}
    for item in items:
        queues.setdefault(queue(item.nodeid), []).append(item)
    return [item for each in queues.values() for item in each]


class Scheduler(LoadScopeScheduling):
    """Assigns each process a queue, and the next one when it has finished."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return queue(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        if WAITS in self.workqueue:
            is_third = self.nodes[2:] == [node]
            self.workqueue.move_to_end(WAITS, last=not is_third)
        super()._assign_work_unit(node)
