"""Every pair of options that the declaration accepts together trains two steps."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import yaml

from tests.techniques.options import OPTIONS, PATHS, together
from tfx_estimator.pipeline.config.load import load
from tfx_estimator.pipeline.errors import DeclarationError

# Each pair on the first path that accepts it, beginning with each in turn, so that each option meets each path.
PAIRS = [
    pytest.param(one, other, (*PATHS[number % 3 :], *PATHS[: number % 3]), id=f"{one}-{other}")
    for number, (one, other) in enumerate(itertools.combinations(OPTIONS, 2))
    if together(one, other)
]


def _load(trainer, path, folder):
    file = folder / "pair.yaml"
    data = {"dataset": "digits", "splits": {"train": "train[:80%]", "eval": "train[80%:]"}}
    declared = {"name": "pair", "data": data, "trainer": {**trainer, "path": path}}
    file.write_text(yaml.safe_dump(declared))
    return load(str(file))


def _accepted(trainer, paths, folder):
    """Loads the declaration on the first path that it is accepted on."""
    problems = []
    for path in paths:
        try:
            return _load(trainer, path, folder)
        except DeclarationError as error:
            problems.append(str(error))
    raise DeclarationError("\n".join(problems))


@pytest.mark.unit
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_accepted_on_a_path(name, tmp_path):
    _accepted(together(name), PATHS, tmp_path)


@pytest.mark.long
@pytest.mark.equivalence
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("one", "other", "paths"), PAIRS)
def test_a_pair_trains_two_steps(one, other, paths, tmp_path, training, settings):
    try:
        declared = _accepted(together(one, other), paths, tmp_path).declaration
    except DeclarationError as error:
        pytest.skip(f"refused: {error}")
    made = dataclasses.replace(settings(), declaration=declared.dict())
    print(f"path: {declared.trainer.path}")
    model, run = training.run(made, steps=2)
    assert run.get_float_custom_property("last_step") == 2
    assert (model / "Format-Serving" / "saved_model.pb").exists()
