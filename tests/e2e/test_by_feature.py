"""The examples of techniques, each run to its end."""

from __future__ import annotations

import re

import pytest

from tests.e2e.conftest import Workdir
from tests.examples import EXAMPLES, copy_example

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(300)]

# What the results say of a technique.
SAID = {
    "evaluation": "by ink x label",
    "tune": "tuned         augment ",
    "pipeline_parallel": "2 stages, 8 microbatches: bubble 0.",
    "scaling": "learning rate 0.04 (0.02 times 2 replicas)",
    "profile": "profile of chief-0: 20 steps in ",
    "warm_start": "trainer.warm_start left out logits/kernel, by trainer.warm_start.exclude; logits/bias",
}
# What must have run before.
FIRST = {"warm_start": ["scaling"]}


@pytest.mark.parametrize("name", sorted(path.stem for path in (EXAMPLES / "by_feature").glob("*.yaml")))
def test_an_example_pushes_a_blessed_model(name, tmp_path):
    folder = copy_example("by_feature", tmp_path)
    workdir = Workdir(folder / "runs")
    for other in FIRST.get(name, ()):
        workdir.run(f"{other}.yaml", cwd=folder)
    said = workdir.run(f"{name}.yaml", cwd=folder)
    assert SAID.get(name, "") in said
    if name == "pipeline_parallel":
        # Of one stage after the other it would be a half; the ideal one is 0.11.
        assert float(re.search(r"bubble (0\.\d+)", said)[1]) < 0.4
    results = workdir.summary(name.replace("_", "-"))
    assert results["blessed"] is True
