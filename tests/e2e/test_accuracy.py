"""Presets, unchanged, on the real images: `make bench-accuracy`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.root import ROOT

# If set, also trains those that take up to half an hour each.
ALL = "TFX_ESTIMATOR_ACCURACY"
PATHS = ("estimator", "keras", "keras_custom_loop")
# Maximal difference between the paths' accuracies; null for a preset that is trained under its own path only.
APART = {"mnist": 0.004, "cifar10": 0.015, "cifar10_resnet": None}
PROMISE = r"^# Expected result: accuracy of ([\d.]+) or more on the ([\d,]+) test images, blessed and pushed"

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(7200)]


@pytest.mark.parametrize("preset", APART)
def test_a_preset_reaches_its_accuracy_under_each_path(workdir, real_data_dir, preset):
    if preset != "mnist" and not os.environ.get(ALL):
        pytest.skip(f"takes half an hour; set {ALL}, as `make bench-accuracy` does")
    promised = re.search(PROMISE, (ROOT / "pipeline" / "presets" / f"{preset}.yaml").read_text(), re.M)
    assert promised
    reached = []
    for path in PATHS if APART[preset] else ("",):
        declared = ("--set", f"data.data_dir={real_data_dir}", *(("--set", f"trainer.path={path}") if path else ()))
        workdir.run(preset, *declared, seconds=5400)
        results = workdir.summary(preset)
        training, minutes = results["training"], f"{results['seconds'] / 60:.1f} min"
        print(f"{preset} {path}: {results['accuracy']:.4f} in {training['last_step']:,.0f} steps, {minutes}")
        assert training["first_step"] == 0
        assert results["evaluated"] == int(promised[2].replace(",", ""))
        assert results["accuracy"] >= float(promised[1])
        # The first is the baseline of the others.
        if not reached:
            assert results["blessed"] is True
            assert (Path(results["pushed"]) / "saved_model.pb").is_file()
        reached.append(results["accuracy"])
    # Rounds off the last bits of the difference.
    assert round(max(reached) - min(reached), 9) <= (APART[preset] or 0)
