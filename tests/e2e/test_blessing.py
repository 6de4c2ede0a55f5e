"""Blessing of models, compared with the last blessed one."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.mark.long
def test_a_model_is_compared_with_the_blessed_one_of_the_same_images_and_a_worse_one_is_not_pushed(digits_run):
    quick = ("--set", "evaluator.min_accuracy=0.2")
    workdir, good = digits_run.workdir, digits_run.summary
    assert good["blessed"] is True

    # A model of the Keras path, compared with the Estimator's.
    worse = ("--set", "trainer.path=keras", "--set", "trainer.train_steps=5")
    printed = workdir.run("digits", *quick, *worse, "--require-blessing", "--json", code=7)
    bad, end = json.JSONDecoder().raw_decode(printed)
    printed = printed[end:]
    assert bad == {**workdir.summary("digits"), "seconds": bad["seconds"]}
    assert (bad["state"], bad["exit_code"], bad["error"]["type"]) == ("failed", 7, "NotBlessedError")
    assert bad["metrics"]["sparse_categorical_accuracy"] == bad["accuracy"]
    assert 0.2 < bad["accuracy"] < good["accuracy"] - 0.01
    assert bad["blessed"] is False
    assert bad["pushed"] is None
    (reason,) = bad["reasons"]
    change = bad["accuracy"] - good["accuracy"]
    assert reason == f"accuracy changed by {change:+.4f} against the latest blessed model, allowed is -0.0100"
    assert f"blessed       no: {reason}\n" in printed
    assert f"tfx-estimator: the model is not blessed: {reason}\n  expected: " in printed
    assert [str(path) for path in (workdir.path / "digits" / "serving").iterdir()] == [good["pushed"]]

    # A model of other images is not compared with that one.
    workdir.run("digits", *quick, "--set", "trainer.train_steps=60", "--set", "data.image_size=[32, 32]")
    assert workdir.summary("digits")["blessed"] is True
    assert len(list((workdir.path / "digits" / "serving").iterdir())) == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [("keras", "estimator"), ("estimator", "keras_custom_loop"), ("keras_custom_loop", "keras")],
)
def test_each_path_s_model_is_compared_with_the_blessed_one_of_another(workdir, baseline, candidate):
    quick = ("--set", "evaluator.min_accuracy=0.2", "--set", "trainer.train_steps=200")
    workdir.run("digits", *quick, "--set", f"trainer.path={baseline}")
    good = workdir.summary("digits")
    assert good["blessed"] is True
    assert good["reasons"] == []

    # Equally good: the same seed, and the same order of examples.
    workdir.run("digits", *quick, "--set", f"trainer.path={candidate}")
    equal = workdir.summary("digits")
    assert equal["blessed"] is True
    assert equal["accuracy"] == pytest.approx(good["accuracy"], abs=0.01)

    worse = ("--set", f"trainer.path={candidate}", "--set", "trainer.train_steps=5")
    workdir.run("digits", *quick, *worse)
    bad = workdir.summary("digits")
    assert bad["blessed"] is False
    change = bad["accuracy"] - equal["accuracy"]
    assert bad["reasons"] == [f"accuracy changed by {change:+.4f} against the latest blessed model, allowed is -0.0100"]
