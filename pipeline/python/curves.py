"""Reads the curves of a training in a subprocess, since their reader imports TensorFlow."""

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

_PRINT = "from tfx_estimator.pipeline.python import curves; curves.print_points(sys.argv[1])"
# If this module can be imported, TensorBoard uses its own file reader: TensorFlow's takes seconds to load.
_WITHOUT_TENSORFLOW = "tensorboard.compat.notf"


def read(model_run: str) -> list[tuple[str, str, int, float]]:
    """Returns the points of all curves: metric, series, step and value; `model_run` is empty without a training."""
    found = _read(model_run) if model_run else {"missing": "it trained nothing"}
    if "missing" in found:
        raise DataNotFoundError(
            f"the curves of the training in {model_run or 'this run'}: {found['missing']}",
            expected="the events that training writes for TensorBoard",
            todo="if that folder was deleted, run it again" if model_run else "choose a run that trained",
        )
    return [tuple(each) for each in found["points"]]


def _read(model_run: str) -> dict[str, Any]:
    command = keeper.dying_with_this([*loader.fresh_python(_PRINT), model_run])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if lines and not done.returncode else {"missing": done.stderr[-2000:]}


def print_points(model_run: str) -> None:
    """Prints the points as one line of JSON."""
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
