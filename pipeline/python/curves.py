"""The curves of a training for a program of Python, read in another process: what reads them imports TensorFlow."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from typing import Any

from tfx_estimator.pipeline.base.ending import keeper
from tfx_estimator.pipeline.base.errors import DataNotFoundError
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.user_source import loader

_TELL = "from tfx_estimator.pipeline.python import curves; curves.tell(sys.argv[1])"
# TensorBoard takes its own reader of files where this can be imported: TensorFlow's takes seconds to load.
_WITHOUT_TENSORFLOW = "tensorboard.compat.notf"


def read(model_run: str) -> list[tuple[str, str, int, float]]:
    """Returns the points of all curves: metric, who measured it, step and value; `model_run` is empty without one."""
    found = _ask(model_run) if model_run else {"missing": "it trained nothing"}
    if "missing" in found:
        raise DataNotFoundError(
            f"the curves of the training in {model_run or 'this run'}: {found['missing']}",
            expected="the events that training writes for TensorBoard",
            todo="see whether that folder was deleted; run it again then" if model_run else "ask a run that trained",
        )
    return [tuple(each) for each in found["points"]]


def _ask(model_run: str) -> dict[str, Any]:
    command = keeper.dying_with_this([*loader.fresh_python(_TELL), model_run])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = done.stdout.splitlines()
    return json.loads(told[-1]) if told and not done.returncode else {"missing": done.stderr[-2000:]}


def tell(model_run: str) -> None:
    """Prints them as one line of JSON."""
    if not is_address(model_run):
        sys.modules[_WITHOUT_TENSORFLOW] = types.ModuleType(_WITHOUT_TENSORFLOW)
    from tfx_estimator.pipeline.report.page import LeftOutError
    from tfx_estimator.pipeline.report.training import read_training

    found: dict[str, Any] = {}
    try:
        curves = read_training(model_run).curves
        found["points"] = [
            (metric, of, step, value)
            for metric, each in curves.items()
            for of, series in each.items()
            for step, value in zip(series.steps, series.values)
        ]
    except LeftOutError as reason:
        found["missing"] = str(reason)
    print(json.dumps(found))  # noqa: T201
