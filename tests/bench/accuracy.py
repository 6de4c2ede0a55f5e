"""`python -m tests.bench.accuracy [--only NAME]`: trains presets on the real data, and prints what they reach."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Optional

from rich.console import Console
from rich.table import Table

from tests.bench.measure import Clock
from tests.conftest import REAL_DATA
from tests.root import ROOT

PATHS = ("estimator", "keras", "keras_custom_loop")


@dataclass(frozen=True)
class Claim:
    """What a preset has to reach.

    Args:
        at_least: Accuracy on the test images, under each path.
        paths: Of `trainer.path`; none is the preset's own.
        apart: How far the paths may be apart, as a difference of accuracies.
    """

    at_least: float
    paths: tuple[str, ...] = ()
    apart: Optional[float] = None


CLAIMS = {
    "mnist": Claim(0.98, PATHS, apart=0.004),
    "cifar10": Claim(0.70, PATHS, apart=0.015),
    "cifar10_resnet": Claim(0.85),
}


@dataclass(frozen=True)
class Reached:
    """What a run reached.

    Args:
        path: Of `trainer.path`; empty is the preset's own.
        accuracy: On the test images.
        training: Seconds of training alone, with the start of its process.
        wall: Seconds of the whole run; those of other paths find its examples made.
        cpu: CPU seconds of the whole run, with all its processes.
    """

    preset: str
    path: str
    accuracy: float
    steps: int
    training: float
    wall: float
    cpu: float

    @property
    def what(self) -> str:
        """The preset, and its path where one was chosen."""
        return f"{self.preset}, {self.path}" if self.path else self.preset

    @property
    def passed(self) -> bool:
        """Is it as accurate as is claimed."""
        return self.accuracy >= CLAIMS[self.preset].at_least


def main() -> int:
    """Trains the presets.

    Returns:
        0 where every claim holds, or there are no data; else 1.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.bench.accuracy", description=__doc__)
    parser.add_argument("--only", choices=list(CLAIMS), action="append", help="may be given more than once")
    parser.add_argument("--path", choices=PATHS, action="append", help="of those that a preset is trained under")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="an override of every run")
    parser.add_argument("--data-dir", default=os.environ.get("TFX_ESTIMATOR_REAL_DATA", REAL_DATA), type=Path)
    parser.add_argument("--output", type=Path, default=ROOT / "bench-results", help="folder of results and runs")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    if not arguments.data_dir.is_dir():
        console.print(
            f"skipped: no prepared MNIST / CIFAR-10 at {arguments.data_dir}; "
            "set TFX_ESTIMATOR_REAL_DATA to a TFDS data_dir"
        )
        return 0
    now = datetime.datetime.now(datetime.timezone.utc)
    folder = arguments.output / f"accuracy-{now:%Y%m%d-%H%M%S}"
    reached = []
    for preset in arguments.only or CLAIMS:
        chosen = [path for path in CLAIMS[preset].paths if not arguments.path or path in arguments.path]
        for path in chosen or [""]:
            overrides = [f"data.data_dir={arguments.data_dir}", *([f"trainer.path={path}"] if path else [])]
            console.print(f"[dim]{preset} {path}[/dim]", highlight=False)
            reached.append(train(preset, path, folder, [*overrides, *arguments.set]))
    show(reached, console)
    file = folder.with_suffix(".json")
    file.write_text(json.dumps({"when": now.isoformat(), "runs": [asdict(each) for each in reached]}, indent=1))
    console.print(f"written to {file}, the runs to {folder}")
    return 0 if all(each.passed for each in reached) and all(kept for *_, kept in spreads(reached)) else 1


def train(preset: str, path: str, workdir: Path, overrides: Sequence[str]) -> Reached:
    """Runs a preset as a user does.

    Args:
        path: Of `trainer.path`, which is among the overrides; empty is the preset's own.
        overrides: `FIELD=VALUE` each.

    Returns:
        What it reached.

    Raises:
        RuntimeError: It failed; the message ends with the last lines that it printed.
    """
    command = [sys.executable, "-m", "tfx_estimator", "run", preset, "--no-dry-run", "--workdir", str(workdir)]
    command += [word for override in overrides for word in ("--set", override)]
    before = Clock.now()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    spent = Clock.now() - before
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    latest = max(workdir.glob("*/logs/*/summary.json"), key=lambda file: file.stat().st_mtime)
    return read(preset, path, json.loads(latest.read_text()), spent)


def read(preset: str, path: str, summary: dict[str, Any], spent: Clock) -> Reached:
    """Takes from a run's summary what it reached.

    Args:
        path: Of `trainer.path`; empty is the preset's own.

    Returns:
        What it reached.
    """
    training = summary["training"]
    steps, seconds = int(training["last_step"]), training["train_seconds"]
    return Reached(preset, path, summary["accuracy"], steps, seconds, spent.wall, spent.cpu)


def spreads(reached: Sequence[Reached]) -> list[tuple[str, float, float, bool]]:
    """How far the paths of each preset are apart.

    Args:
        reached: What the runs reached.

    Returns:
        The preset, the largest difference of accuracies, the claimed one, and whether it holds; of the presets that
        were trained under more than one path.
    """
    found = []
    for preset, claim in CLAIMS.items():
        accuracies = [each.accuracy for each in reached if each.preset == preset]
        if claim.apart is not None and len(accuracies) > 1:
            # Without the last bits of the difference of two numbers.
            apart = round(max(accuracies) - min(accuracies), 9)
            found.append((preset, apart, claim.apart, apart <= claim.apart))
    return found


def show(reached: Sequence[Reached], console: Console) -> None:
    """Prints what was reached as a table.

    Args:
        reached: What the runs reached.
        console: Where to.
    """
    table = Table(title="accuracy on the real test images")
    for column in ("what", "accuracy", "claim", "steps", "training min", "whole run min", "CPU min", ""):
        table.add_column(column, justify="left" if column in ("what", "") else "right")
    for each in reached:
        minutes = [f"{seconds / 60:.1f}" for seconds in (each.training, each.wall, each.cpu)]
        claim = f"≥ {CLAIMS[each.preset].at_least:.2f}"
        table.add_row(each.what, f"{each.accuracy:.4f}", claim, str(each.steps), *minutes, _verdict(each.passed))
    for preset, apart, claimed, holds in spreads(reached):
        points = f"{100 * apart:.2f} points", f"≤ {100 * claimed:.1f}"
        table.add_row(f"{preset}, paths apart", *points, "", "", "", "", _verdict(holds))
    console.print(table)


def _verdict(passed: bool) -> str:
    return "[green]pass[/green]" if passed else "[red]FAIL[/red]"


if __name__ == "__main__":
    sys.exit(main())
