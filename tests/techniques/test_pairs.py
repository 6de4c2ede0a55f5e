"""Every pair of options that the declaration accepts together trains two steps."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import yaml

from tests.techniques.options import OPTIONS, PATHS, together
from tfx_estimator.pipeline.config.load import load
from tfx_estimator.pipeline.errors import DeclarationError

# Each pair on one path, so that each option meets each path with a third of the others.
PAIRS = [
    pytest.param(one, other, PATHS[number % 3], id=f"{one}-{other}-{PATHS[number % 3]}")
    for number, (one, other) in enumerate(itertools.combinations(OPTIONS, 2))
    if together(one, other)
]


def _load(trainer, path, folder):
    file = folder / "pair.yaml"
    data = {"dataset": "digits", "splits": {"train": "train[:80%]", "eval": "train[80%:]"}}
    declared = {"name": "pair", "data": data, "trainer": {**trainer, "path": path}}
    file.write_text(yaml.safe_dump(declared))
    return load(str(file))


@pytest.mark.unit
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_accepted_on_a_path(name, tmp_path):
    problems = []
    for path in PATHS:
        try:
            _load(together(name), path, tmp_path)
            return
        except DeclarationError as error:
            problems.append(str(error))
    pytest.fail("\n".join(problems))


@pytest.mark.long
@pytest.mark.equivalence
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("one", "other", "path"), PAIRS)
def test_a_pair_trains_two_steps(one, other, path, tmp_path, training, settings):
    try:
        loaded = _load(together(one, other), path, tmp_path)
    except DeclarationError as error:
        pytest.skip(f"refused: {error}")
    made = dataclasses.replace(settings(), declaration=loaded.declaration.dict())
    model, run = training.run(made, steps=2)
    assert run.get_float_custom_property("last_step") == 2
    assert (model / "Format-Serving" / "saved_model.pb").exists()
