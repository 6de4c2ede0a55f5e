"""What `trainer.profile` takes, and what is refused, with which words."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.profile import Profile

pytestmark = pytest.mark.unit


def test_it_is_off_unless_declared(write, good):
    write(good)
    assert load("mine.yaml").declaration.trainer.profile is None
    found = load("mine.yaml", ["trainer.profile.steps=5"]).declaration.trainer.profile
    assert found == Profile(start_step=100, steps=5)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("  profile: {start_step: 500}\n", "training ends before the profile begins"),
        ("  profile: {start_step: 0}\n", "the value is out of range"),
        ("  profile: {steps: 1001}\n", "the value is out of range"),
        ("  profile: {step: 10}\n", "did you mean `steps`?"),
    ],
)
def test_what_is_refused(problems, good, declared, said):
    (problem,) = problems(good + declared)
    assert said in problem
    assert problem.startswith("mine.yaml:8  trainer.profile")


def test_a_run_fn_is_refused(write, problems, good):
    write("def run_fn(fn_args):\n    pass\n", "own.py")
    (problem,) = problems(good.replace("model: mnist_cnn", "module_file: own.py") + "  profile: {}\n")
    assert "a run_fn does its steps by itself" in problem


@pytest.mark.parametrize(
    ("strategy", "path", "noted"),
    [
        ("parameter_server", "keras", True),
        ("parameter_server", "keras_custom_loop", True),
        ("parameter_server", "estimator", False),
        ("multi_worker_mirrored", "keras", False),
    ],
)
def test_tasks_that_do_the_steps_and_have_no_profile_are_noted(write, good, strategy, path, noted):
    write(f"{good}  path: {path}\n  distribution: {{train: {strategy}}}\n")
    assert load("mine.yaml").notes == ()
    notes = load("mine.yaml", ["trainer.profile.start_step=5"]).notes
    assert (
        "only the chief is profiled, which hands out the steps; the workers, which do them" in "".join(notes)
    ) is noted
    assert len(notes) == noted
