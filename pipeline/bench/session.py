"""`tfx-estimator bench strategies`: measures, as a person sees it on the terminal, and writes the results."""

from __future__ import annotations

import datetime
import os
import platform
import re
import time
from typing import Any, Optional

from rich.console import Console

from tfx_estimator.pipeline.base.ending import shared_status
from tfx_estimator.pipeline.base.ending.signals import SignalledError
from tfx_estimator.pipeline.base.errors import StoppedError, TfxEstimatorError
from tfx_estimator.pipeline.base.files import make_dated, write_json, write_whole
from tfx_estimator.pipeline.base.importing import uncollected
from tfx_estimator.pipeline.base.installed import version_of
from tfx_estimator.pipeline.bench.plan import HTML_FILE, JSON_FILE, PNG_FILE, Plan, Run
from tfx_estimator.pipeline.bench.strategies import Choice, available_cores
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.run.printing import make_console, title
from tfx_estimator.pipeline.run.terminal import in_order, quiet
from tfx_estimator.pipeline.run.view import View

_WIDTH_OF_A_FILE = 140


def bench_strategies(choice: Choice, plan: Plan, workdir: str, output: Optional[str]) -> int:
    """Compares strategies on this machine.

    Args:
        workdir: Folder of all runs; the inputs are those of the pipeline's runs there.
        output: Folder for the results; None is a new one under the work folder.

    Returns:
        The exit code, 0.

    Raises:
        TfxEstimatorError: The inputs could not be made, or a strategy could not be measured; results of the others
            are written all the same.
        StoppedError: A signal ended a training; what was measured until then is written
            if it says anything: of the base and of another strategy.
        SignalledError: The same outside of a training.
    """
    loaded = choice.loaded[plan.contenders[0].variation]
    folders = PipelineFolders(workdir, loaded.declaration.name)
    with in_order(folders):
        folder = make_dated(os.path.join(folders.home, "bench"))
        with quiet(os.path.join(folder, "bench.log")) as terminal:
            console = make_console(terminal, _WIDTH_OF_A_FILE)
            title(console, folders.name, loaded.source, output or folder)
            _Session(choice, plan, folders, folder, console).run(output or folder)
    return 0


class _Session:
    """One comparison."""

    def __init__(self, choice: Choice, plan: Plan, folders: PipelineFolders, folder: str, console: Console) -> None:
        self._choice = choice
        self._loaded = choice.loaded[plan.contenders[0].variation]
        self._plan = plan
        self._folders = folders
        self._folder = folder
        self._console = console
        self._view = _BenchView(console)
        self._facts: dict[str, Any] = {}
        self._round = 0
        self._measurements: list[Any] = []
        self._failed: dict[str, TfxEstimatorError] = {}

    def run(self, output: str) -> None:
        stopped: Optional[BaseException] = None
        with self._view.explaining(os.path.join(self._folder, "bench.log")):
            try:
                self._measure()
            except (StoppedError, SignalledError) as error:
                stopped = error
        if stopped is None or self._measured() > {self._base}:
            with shared_status.patient():
                self._write(self._comparison(stopped is not None), output)
        if stopped is not None:
            raise stopped
        if self._failed:
            raise next(iter(self._failed.values()))

    @property
    def _base(self) -> str:
        return str(self._plan.contenders[0])

    def _measured(self) -> set[str]:
        """The strategies that there is a result of."""
        return {each.strategy for each in self._measurements} - set(self._failed)

    def _comparison(self, stopped: bool) -> Any:
        from tfx_estimator.pipeline.bench.results import Comparison

        failures = {name: str(error) for name, error in self._failed.items()}
        ended = self._ended_early() if stopped else ""
        return Comparison(self._base, self._measurements, failures, self._facts, ended, self._choice.refused)

    def _ended_early(self) -> str:
        names = map(str, self._plan.contenders)
        missing = [name for name in names if name not in self._measured() | set(self._failed)]
        left = f"; not measured: {', '.join(missing)}" if missing else ""
        return f"It was ended in round {self._round} of {self._plan.rounds}, before all was measured{left}."

    def _measure(self) -> None:
        with self._view.waiting("starting TensorFlow and TFX"), uncollected():
            from tfx_estimator.pipeline.bench.inputs import prepare_inputs
            from tfx_estimator.pipeline.bench.measure import measure
        self._facts = self._find_facts()
        loaded, like = self._choice.loaded, self._choice.inputs_like
        first = {like(each.variation): None for each in self._plan.contenders}
        inputs = {each: prepare_inputs(loaded[each], self._folders, self._view) for each in first}
        runs = list(self._plan.runs())
        for index, run in enumerate(runs, 1):
            if str(run.contender) in self._failed:
                continue
            self._round = run.round
            self._view.node_started(f"{run}, round {run.round}", index, len(runs))
            shared_status.at(f"in round {run.round}, {run}")
            started = time.monotonic()
            try:
                variation = run.contender.variation
                given, declaration = inputs[like(variation)], loaded[variation].declaration
                found = measure(run, self._plan, given, declaration, self._folder)
            except TfxEstimatorError as error:
                # A contender that fails is a result, too; but without the base there is nothing to compare with.
                if isinstance(error, StoppedError) or str(run.contender) == self._base:
                    raise
                self._failed[str(run.contender)] = error
                self._ended(run, "failed", started)
                continue
            self._ended(run, f"{found.examples_per_second:,.0f} examples/s" if found else "not possible", started)
            self._measurements += [found] if found else []

    def _ended(self, run: Run, what: str, started: float) -> None:
        self._view.hide()
        seconds = time.monotonic() - started
        self._console.print(f"  round {run.round}  {run!s:<42} {what:>22} {seconds:7.1f} s")

    def _write(self, comparison: Any, output: str) -> None:
        from tfx_estimator.pipeline.bench.plot import to_png
        from tfx_estimator.pipeline.bench.report import show, to_html

        os.makedirs(output, exist_ok=True)
        paths = {name: os.path.join(output, name) for name in (JSON_FILE, PNG_FILE, HTML_FILE)}
        write_json(paths[JSON_FILE], comparison.to_dict(), indent=2, allow_nan=False)
        png = to_png(comparison)
        write_whole(paths[PNG_FILE], png)
        write_whole(paths[HTML_FILE], to_html(comparison, png))
        show(comparison, self._console)
        self._console.print()
        for path in paths.values():
            self._console.print(path)

    def _find_facts(self) -> dict[str, Any]:
        """What the numbers hold for."""
        trainer = self._loaded.declaration.trainer
        varied = any(each.variation.overrides for each in self._plan.contenders)
        return {
            "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "name": self._loaded.declaration.name,
            "source": self._loaded.source,
            "model": trainer.model or trainer.module_file,
            # A module file need not keep to it; what a step trained with was counted.
            "global_batch_size": None if trainer.module_file else trainer.global_batch_size,
            "steps": self._plan.steps,
            "warmup": self._plan.warmup,
            "rounds": self._plan.rounds,
            **({"variations": {str(each): each.variation.values for each in self._plan.contenders}} if varied else {}),
            "machine": {
                "cpu": _cpu(),
                "cores": len(available_cores()),
                "load": os.getloadavg()[0],
                "python": platform.python_version(),
                **{name: version_of(name) for name in ("tensorflow", "tfx")},
            },
        }


class _BenchView(View):
    """Shows how the trainings go; they have no last step, and a module file's examples/s are not the supervisor's."""

    def progress(self, text: str) -> None:
        super().progress(re.sub(r"^(step \d+)/.*", r"\1", text))


def _cpu() -> str:
    """The processor's name, if Linux knows it."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.machine()
