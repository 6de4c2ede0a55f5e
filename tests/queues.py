"""Which tests may run beside each other in the two processes of `make test`.

Each queue below is kept to one process, which does its tests in turn: their fixtures are made once. The first two
begin; whichever process is done takes the next, and the files of all other tests follow, one by one.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# Queue -> where its tests are; the longest begin.
QUEUES = {
    "trainings": (
        "tests/components/trainer/",
        "tests/components/tuner/test_executor.py",
        "tests/components/evaluator/",
    ),
    "pipelines": ("tests/e2e/", "tests/store/", "tests/wheel/", "tests/pipeline/commands/test_bench.py"),
    "equalities": ("tests/equivalence/", "tests/faults/", "tests/model_fn/"),
    "conversions": ("tests/pipeline/convert/",),
    "techniques": ("tests/techniques/",),
    "clusters": ("tests/pipeline/platforms/training_jobs/",),
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
