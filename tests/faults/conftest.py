"""Trainings with injected faults (kills, stops, damages), and a table of their results."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from tests.components.trainer.conftest import Training, declaration, digits, settings  # noqa: F401
from tests.faults.injector import Fault

# Steps between two checkpoints, and in total.
INTERVAL, STEPS = 25, 150
# TensorFlow 2's, on the Keras paths: two workers, and partitioned variables on two servers.
SERVED = {
    "strategy": "parameter_server",
    "workers": 3,
    "ps": 2,
    "variable_partitioner": {"min_bytes": 4096, "max_shards": 2},
}

_MATRIX = pytest.StashKey[list]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_MATRIX] = []


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    rows = config.stash.get(_MATRIX, [])
    if not rows:
        return
    table = Table(title="fault matrix")
    for title in [
        "fault",
        "path",
        "cluster",
        "ended",
        "steps",
        "restarts",
        "lost steps",
        "start (s)",
        "resumed after (s)",
    ]:
        table.add_column(title)
    for row in rows:
        table.add_row(*(f"{value:.1f}" if isinstance(value, float) else str(value) for value in row))
    Console(file=terminalreporter._tw._file, width=140).print(table)


class Faulty:
    """Runs a training, and injects faults."""

    def __init__(self, training: Training, settings: Any, rows: list) -> None:
        self.training = training
        self.make_settings = settings
        self.rows = rows

    def settings(self, train: dict[str, Any], path: str = "estimator", **distribution: Any) -> Any:
        """Settings of a short training with short deadlines."""
        train = {"timeout_seconds": 10, **train} if train["strategy"] == "multi_worker_mirrored" else train
        # At the learning rate of the others, stale gradients sometimes diverge without any fault.
        slower = {"optimizer": {"learning_rate": 0.02}} if train["strategy"] == "parameter_server" else {}
        section = {
            **slower,
            "path": path,
            "train_steps": STEPS,
            "save_checkpoints_steps": INTERVAL,
            "distribution": {"train": train, **distribution},
        }
        return self.make_settings(section, path=path, start_timeout=45.0, stall_timeout=12.0)

    def run(self, name: str, settings: Any, *faults: Fault) -> Any:
        """Trains; each fault happens at its moment."""
        over = threading.Event()
        for fault in faults:
            fault.watch(self.training.root, over)
        kind = settings.declaration["trainer"]["path"], settings.distribution.train.strategy
        try:
            model, model_run = self.training.run(settings)
        except Exception as error:
            self.rows.append((name, *kind, type(error).__name__, "", "", "", "", ""))
            raise
        finally:
            over.set()
            for fault in faults:
                fault.join(20)
        number = model_run.get_float_custom_property
        start, resumed = resumption(Path(model_run.uri) / "logs", faults)
        history = json.loads(model_run.get_string_custom_property("history"))
        # After the last step: the time until the end.
        resumed = resumed or max((restart["seconds"] or 0.0 for restart in history), default=0.0)
        row = (name, *kind, "trained", int(number("last_step")), int(number("restarts")), int(number("lost_steps")))
        self.rows.append((*row, start, resumed))
        assert all(fault.happened for fault in faults), [str(fault) for fault in faults]
        return model, model_run


def resumption(logs: Path, faults: tuple[Fault, ...]) -> tuple[float, float]:
    """Returns the seconds of the chief's quickest start, and those from the fault to the next new step."""
    steps, starts = [], []
    for path in logs.glob("*.progress.jsonl"):
        if path.name.split("-")[0] in ("chief", "worker"):
            events = [json.loads(line) for line in path.read_text().splitlines()]
            own = [(event["time"], event["step"]) for event in events if event["event"] == "step"]
            steps += own
            if own and path.name.startswith("chief"):
                task_spec = path.with_name(path.name.replace("progress.jsonl", "task.json"))
                starts.append(own[0][0] - task_spec.stat().st_mtime)
    start = min(starts, default=0.0)
    if not faults or not faults[0].happened:
        return start, 0.0
    moment = faults[0].happened
    before = max((step for when, step in steps if when <= moment), default=-1)
    after = [when for when, step in steps if when > moment and step > before]
    return start, (min(after) - moment if after else 0.0)


@pytest.fixture
def faulty(tmp_path: Path, digits: dict, settings: Any, request: pytest.FixtureRequest) -> Faulty:
    return Faulty(Training(tmp_path / "Trainer", digits), settings, request.config.stash[_MATRIX])
