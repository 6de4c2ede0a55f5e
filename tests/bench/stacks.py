"""The benchmark of today's stack against the old one."""

from __future__ import annotations

import os
import sys
from typing import Any

from tests.bench.measure import alternate, alternate_slices, median
from tests.bench.report import Ratio
from tests.bench.setting import Setting, in_slices, less, micros_of, whole
from tests.stack import OTHER_PYTHON
from tfx_estimator.pipeline.base.stack.stacks import LEGACY, STACKS, TODAY, current

# The same values as in the suites `training`, `keras_cifar` and `pipeline`.
ESTIMATOR: dict[str, Any] = {"side": "ours", "batch_size": 64, "steps": 60}
KERAS: dict[str, Any] = {"side": "keras", "case": "cifar_cnn", "slice_steps": 200}
SLICES = 11
RUN: dict[str, Any] = {"side": "ours", "floats": "", "batch_size": 128, "steps": 500}


def stacks(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """Today's stack against the old one: an Estimator on MNIST, Keras on CIFAR-10, and a whole run."""
    other = os.environ.get(OTHER_PYTHON)
    if not other:
        setting.log(f"{OTHER_PYTHON} names no Python of the other stack: nothing is measured")
        return [], {}
    pythons = {each.name: sys.executable if each == current() else other for each in STACKS}
    ratios: list[Ratio] = []
    everything: dict[str, Any] = {}
    for what, task, dataset, options in (
        ("an Estimator, MNIST", "train", "mnist", ESTIMATOR),
        ("keras, CIFAR-10", "train_keras", "cifar10", KERAS),
    ):
        options = {**options, "data_dir": setting.data_dir, "prepared": setting.prepared(dataset)}
        sides = [(name, in_slices(task, python=python, **options)) for name, python in pythons.items()]
        results = alternate_slices(sides, SLICES, setting.rounds, setting.log)
        ratios.append(
            less(f"{what}: CPU per example", micros_of(results[LEGACY.name]), micros_of(results[TODAY.name]), 1)
        )
        everything |= {f"{what}, {name}": values for name, values in results.items()}
    run = {**RUN, "data_dir": setting.data_dir}
    wholes = [(name, whole("run_pipeline", python=python, **run)) for name, python in pythons.items()]
    results = alternate(wholes, setting.rounds, setting.log)
    cpu = {name: median([value["process"] for value in values], "cpu") for name, values in results.items()}
    ratios.append(less("a whole run: CPU", cpu[LEGACY.name], cpu[TODAY.name], 1, "s"))
    return ratios, {**everything, **results}
