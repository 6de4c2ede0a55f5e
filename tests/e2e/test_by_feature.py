"""The examples of techniques, each run to its end."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Workdir
from tests.examples import EXAMPLES, copy_example

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(300)]

# What the results say of a technique.
SAID = {
    "scaling": "learning rate 0.04 (0.02 times 2 replicas)",
    "profile": "profile of chief-0: 20 steps in ",
}


@pytest.mark.parametrize("name", sorted(path.stem for path in (EXAMPLES / "by_feature").glob("*.yaml")))
def test_an_example_pushes_a_blessed_model(name, tmp_path):
    folder = copy_example("by_feature", tmp_path)
    workdir = Workdir(folder / "runs")
    said = workdir.run(f"{name}.yaml", cwd=folder)
    assert SAID.get(name, "") in said
    results = workdir.summary(name)
    assert results["blessed"] is True
    assert (folder / "runs" / name / "serving").is_dir() or results["pushed"]
