"""`tfx-estimator bench strategies`: measures strategies, shows the progress, and writes the results."""

from __future__ import annotations

import os
import platform
import re
import time
from typing import Any, Optional

from tfx_estimator.pipeline.base.ending import shared_status
from tfx_estimator.pipeline.base.ending.signals import SignalledError
from tfx_estimator.pipeline.base.errors import StoppedError, TfxEstimatorError
from tfx_estimator.pipeline.base.installed import uncollected, version_of
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.experiments.bench.strategies import (
    HTML_FILE,
    JSON_FILE,
    PNG_FILE,
    Choice,
    Plan,
    available_cores,
)
from tfx_estimator.pipeline.experiments.session import Files, Session, now, opened
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.run.view import View


def bench_strategies(choice: Choice, plan: Plan, workdir: str, output: Optional[str]) -> int:
    """Compares strategies on this machine, on the inputs of the pipeline's runs in the work folder.

    Raises:
        TfxEstimatorError: The inputs could not be made, or a strategy could not be measured; the results of the others
            are written. After a signal they are written if the base and another strategy have results.
    """
    loaded = choice.loaded[plan.contenders[0].variation]
    folders = PipelineFolders(workdir, loaded.declaration.name)
    with opened(folders, "bench", f"{folders.name}  {one_line(loaded.source)}", output) as session:
        _Bench(choice, plan, session).run()
    return 0


class _Bench:
    """One comparison."""

    def __init__(self, choice: Choice, plan: Plan, session: Session) -> None:
        self._choice = choice
        self._plan = plan
        self._session = session
        self._base = str(plan.contenders[0])
        self._view = _BenchView(session.console)
        self._facts: dict[str, Any] = {}
        self._round = 0
        self._measurements: list[Any] = []

    def run(self) -> None:
        stopped: Optional[BaseException] = None
        failed = self._session.failed
        with self._view.explaining(self._session.log):
            try:
                self._measure()
            except (StoppedError, SignalledError) as error:
                stopped = error
        if stopped is None or self._measured() > {self._base}:
            with shared_status.patient():
                self._write(self._ended_early() if stopped else "")
        if stopped is not None:
            raise stopped
        if failed:
            raise next(iter(failed.values()))

    def _measured(self) -> set[str]:
        """Returns the strategies with a result."""
        return {each.strategy for each in self._measurements} - set(self._session.failed)

    def _ended_early(self) -> str:
        done = self._measured() | set(self._session.failed)
        missing = [name for name in map(str, self._plan.contenders) if name not in done]
        left = f"; not measured: {', '.join(missing)}" if missing else ""
        return f"The comparison was ended in round {self._round} of {self._plan.rounds}{left}."

    def _measure(self) -> None:
        with self._view.waiting("starting TensorFlow and TFX"), uncollected():
            from tfx_estimator.pipeline.experiments.bench.measure import measure
            from tfx_estimator.pipeline.experiments.training import prepare_inputs
        self._facts = self._find_facts()
        loaded, like = self._choice.loaded, self._choice.inputs_like
        first = {like(each.variation): None for each in self._plan.contenders}
        inputs = {each: prepare_inputs(loaded[each], self._session.folders, self._view) for each in first}
        runs = list(self._plan.runs())
        for index, run in enumerate(runs, 1):
            name, variation = str(run.contender), run.contender.variation
            if name in self._session.failed:
                continue
            self._round = run.round
            self._view.node_started(f"{run}, round {run.round}", index, len(runs))
            shared_status.at(f"in round {run.round}, {run}")
            started = time.monotonic()
            try:
                given, declaration = inputs[like(variation)], loaded[variation].declaration
                found = measure(run, self._plan, given, declaration, self._session.folder)
            except TfxEstimatorError as error:
                # A contender's failure is a result, but the base is needed.
                if isinstance(error, StoppedError) or name == self._base:
                    raise
                self._session.failed[name] = error
                outcome = "failed"
            else:
                self._measurements += [found] if found else []
                outcome = f"{found.examples_per_second:,.0f} examples/s" if found else "not possible"
            self._view.hide()
            self._session.print_ended(f"round {run.round}  {run!s:<42} {outcome:>22}", started)

    def _write(self, ended: str) -> None:
        from tfx_estimator.pipeline.experiments.bench.page import show, to_html, to_png
        from tfx_estimator.pipeline.experiments.bench.results import Comparison

        session, refused = self._session, self._choice.refused
        found = Comparison(self._base, self._measurements, session.failures, self._facts, ended, refused)
        png = to_png(found)
        files: Files = {JSON_FILE: found.to_dict(), PNG_FILE: png, HTML_FILE: to_html(found, png)}
        session.write(files, lambda console: show(found, console))

    def _find_facts(self) -> dict[str, Any]:
        """Returns the conditions of the measurements."""
        loaded = self._choice.loaded[self._plan.contenders[0].variation]
        trainer = loaded.declaration.trainer
        varied = any(each.variation.overrides for each in self._plan.contenders)
        return {
            "when": now(),
            "name": loaded.declaration.name,
            "source": loaded.source,
            "model": trainer.model or trainer.module_file,
            # A module file may use another batch size; examples are counted.
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
    """Shows progress without last step, which trainings here lack, and without the supervisor's examples/s."""

    def progress(self, text: str) -> None:
        super().progress(re.sub(r"^(step \d+)/.*", r"\1", text))


def _cpu() -> str:
    """The processor's name, if Linux knows it."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.machine()
