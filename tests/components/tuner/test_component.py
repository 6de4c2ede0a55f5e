"""The Tuner as a TFX component: its cache key, its channels and the arguments it refuses."""

from __future__ import annotations

import json

import pytest
from tfx.types import Channel, standard_artifacts

from tfx_estimator import Tuner
from tfx_estimator.components.trainer.estimator.trainer_fn import trainer_fn
from tfx_estimator.components.trainer.settings import OPERATION_KEY, Settings
from tfx_estimator.components.tuner.component import read_tune
from tfx_estimator.components.tuner.executor import TUNE_KEY, TUNE_OPERATION_KEY, of_properties, to_properties
from tfx_estimator.pipeline.base.errors import DeclarationError

TUNE = {"max_trials": 3, "ranges": {"units": [8, 16], "rate": {"min": 1e-4, "max": 0.1, "sampling": "log"}}}
MODULE = "def trainer_fn(fn_args, schema):\n    return fn_args.hyperparameters\n"


def tuner(**values):
    return Tuner(Channel(type=standard_artifacts.Examples), **{"tune": TUNE, **values})


@pytest.fixture
def module(tmp_path) -> str:
    file = tmp_path / "own.py"
    file.write_text(MODULE)
    return str(file)


def test_a_section_is_passed_whole_and_irrelevant_options_are_not_in_the_key():
    section = read_tune({**TUNE, "max_consecutive_failures": 5, "parallel_trials": 4})
    properties = to_properties(section)
    assert of_properties(properties[TUNE_KEY], properties[TUNE_OPERATION_KEY]) == section
    assert to_properties(read_tune(TUNE))[TUNE_KEY] == properties[TUNE_KEY]
    # There, known results decide the next trials.
    parallel = [to_properties(read_tune({**TUNE, "strategy": "bayesian", "parallel_trials": n})) for n in (1, 2)]
    assert parallel[0][TUNE_KEY] != parallel[1][TUNE_KEY]
    assert to_properties(read_tune({**TUNE, "seed": 2}))[TUNE_KEY] != properties[TUNE_KEY]


def test_it_has_the_outputs_of_tfx_and_a_driver_that_blanks_irrelevant_options(module):
    made = tuner(module_file=module, threads={"intra_op": 1})
    assert set(made.outputs) == {"best_hyperparameters", "tuner_results"}
    assert made.driver_class.UNKEYED == (OPERATION_KEY, TUNE_OPERATION_KEY)
    assert json.loads(made.exec_properties[TUNE_KEY])["max_trials"] == 3


TWICE = Settings(arguments={"onednn": False})


@pytest.mark.parametrize(
    ("values", "begin", "message"),
    [
        ({"tune": {"ranges": {}}}, "Tuner(tune=…) has 1 problem", "there is nothing to vary"),
        ({"tune": {"ranges": {"a": [1, 2]}, "objective": "quality"}}, "Tuner(tune=…)", "set tune.objective.mode"),
        ({"tune": {"ranges": {"a": object()}}}, "Tuner(tune=…): ranges.a is an object", "a is an object"),
        ({"tune": {"ranges": {"trainer.seed": [1, 2]}}}, "Tuner(tune=…) varies trainer.seed", "no declaration"),
        ({"trainer_fn": "own.trainer_fn"}, "Tuner is given", "none, or several, of module_file, run_fn and trainer_fn"),
        ({"threads": {"intra": 2}}, "Tuner(threads=…) has 1 problem", "did you mean `intra_op`?"),
        ({"onednn": True, "settings": TWICE}, "Tuner(onednn=…): the settings hold", "values in one place"),
    ],
)
def test_wrong_arguments_are_refused_by_their_python_names(module, values, begin, message):
    with pytest.raises(DeclarationError) as caught:
        tuner(module_file=module, **values)
    assert message in str(caught.value)
    assert str(caught.value).splitlines()[0].startswith(begin)


def test_a_modules_own_hyperparameters_may_have_values_of_several_types(module):
    made = tuner(module_file=module, tune={"ranges": {"units": [8, "a", None]}})
    assert json.loads(made.exec_properties[TUNE_KEY])["ranges"]["units"]["values"] == [8, "a", None]


def test_a_run_fn_is_refused(tmp_path):
    file = tmp_path / "own.py"
    file.write_text("def run_fn(fn_args):\n    return fn_args.hyperparameters\n")
    with pytest.raises(DeclarationError, match="a run_fn, which runs its own evaluation"):
        tuner(module_file=str(file))


def test_a_declaration_is_part_of_the_key_except_its_deadlines(settings):
    name = f"{trainer_fn.__module__}.{trainer_fn.__name__}"
    tune = {"ranges": {"trainer.seed": [1, 2]}}
    made, late, other = (
        tuner(trainer_fn=name, tune=tune, settings=settings(trainer, source="x", path="estimator"))
        for trainer in ({}, {"stall_timeout": 10.0}, {"label_smoothing": 0.1})
    )
    keyed = [{k: v for k, v in each.exec_properties.items() if k != OPERATION_KEY} for each in (made, late, other)]
    assert keyed[0] == keyed[1]
    assert keyed[0] != keyed[2]
