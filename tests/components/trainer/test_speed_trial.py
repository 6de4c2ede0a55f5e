"""What is declared as `auto`: what a trial decides, and what is kept of it."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from tfx_estimator.components.trainer.cluster.plan import speed_trial_task
from tfx_estimator.components.trainer.protocol.job import Job
from tfx_estimator.components.trainer.speed_trial import verdict
from tfx_estimator.components.trainer.speed_trial.verdict import Slice, Way
from tfx_estimator.components.trainer.supervisor import decision
from tfx_estimator.pipeline import errors
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.trainer import TrainerSection

PLAIN, COMPILED, SHORT = Way("float32", False), Way("float32", True), Way("mixed_bfloat16", False)


def _section(**values):
    return TrainerSection.parse_obj({"model": "mnist_cnn", "train_steps": 10, **values})


def _slices(*seconds):
    """Of 100 examples each; CPU and wall seconds."""
    return [Slice(100, cpu, wall) for cpu, wall in seconds]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("declared", "ways"),
    [
        ({"xla": "auto"}, [PLAIN, COMPILED]),
        ({"precision": "auto"}, [PLAIN, SHORT]),
        ({"precision": "auto", "xla": True}, [COMPILED, Way("mixed_bfloat16", True)]),
        ({"precision": "mixed_bfloat16", "xla": "auto"}, [SHORT, Way("mixed_bfloat16", True)]),
        ({"precision": "auto", "xla": "auto"}, [PLAIN, SHORT, COMPILED, Way("mixed_bfloat16", True)]),
    ],
)
def test_the_plain_way_comes_first(declared, ways):
    assert verdict.ways_of(_section(**declared)) == ways


@pytest.mark.unit
@pytest.mark.parametrize(
    ("seconds", "by_cpu", "taken"),
    [
        ([(1.0, 1.0), (0.7, 0.7)], True, COMPILED),
        # Not where it is slower by either clock.
        ([(1.0, 1.0), (1.1, 0.7)], True, PLAIN),
        ([(1.0, 1.0), (0.7, 1.1)], True, PLAIN),
        # A GPU computes: CPU time says nothing.
        ([(1.0, 1.0), (1.1, 0.7)], False, COMPILED),
        # Too little to be certain of.
        ([(1.0, 1.0), (0.97, 0.97)], True, PLAIN),
    ],
)
def test_the_faster_way_is_taken_by_both_clocks(seconds, by_cpu, taken):
    slices = {way: _slices(*[each] * 5) for way, each in zip((PLAIN, COMPILED), seconds)}
    assert verdict.decide(slices, {}, ["xla"], by_cpu).way == taken


@pytest.mark.unit
def test_a_shorter_precision_is_compiled_where_compiling_gains():
    both = Way("mixed_bfloat16", True)
    assert verdict.why_hopeless(COMPILED, PLAIN, {PLAIN: 1.0, SHORT: 0.5}) == ""
    assert verdict.why_hopeless(both, PLAIN, {PLAIN: 1.0, SHORT: 0.5, COMPILED: 0.9}) == ""
    # That may be noise.
    assert verdict.why_hopeless(both, PLAIN, {PLAIN: 1.0, SHORT: 0.5, COMPILED: 1.05}) == ""
    reason = "a step of float32 with XLA takes 1.3 times as long as of float32"
    assert verdict.why_hopeless(both, PLAIN, {PLAIN: 1.0, SHORT: 0.5, COMPILED: 1.3}) == reason
    # It failed.
    assert verdict.why_hopeless(both, PLAIN, {PLAIN: 1.0, SHORT: 0.5}) == "float32 with XLA was left out"
    # Nobody asked whether to compile, or for which precision.
    assert verdict.why_hopeless(both, COMPILED, {COMPILED: 1.0}) == ""
    assert verdict.why_hopeless(both, SHORT, {SHORT: 1.0}) == ""


@pytest.mark.unit
def test_a_disturbed_slice_decides_nothing():
    slow, fast = (1.0, 1.0), (0.5, 0.5)
    slices = {PLAIN: _slices(slow, fast, slow, slow, slow), COMPILED: _slices(fast, (9.0, 9.0), fast, fast, fast)}
    found = verdict.decide(slices, {SHORT: "XLA knows no such operation"}, ["xla", "precision"], True)
    assert found.way == COMPILED
    assert found.measured["float32 with XLA"]["gain"] == pytest.approx(2.0)
    assert found.measured["float32"]["cpu_micros_per_example"] == pytest.approx(1e4)
    assert found.text.startswith("xla true and precision float32, after a trial: float32 10000.0 µs of CPU an example")
    assert "float32 with XLA 5000.0 µs of CPU an example and 200 examples/s, 2.00 times as fast" in found.text
    assert "mixed_bfloat16 left out: XLA knows no such operation" in found.text
    assert "\n" not in found.text


def _job(folder, **trainer):
    settings = {"declaration": {"trainer": _section(**trainer).dict()}}
    return Job("", "", {}, str(folder), settings)


@pytest.mark.unit
def test_a_verdict_is_kept_for_the_next_run(tmp_path):
    job = _job(tmp_path, xla="auto", precision="auto")
    found = verdict.decide({PLAIN: _slices((1, 1)), SHORT: _slices((0.4, 0.4))}, {}, ["precision", "xla"], True)
    kept = decision.find_verdict(job, lambda: verdict.write(str(tmp_path), found))
    assert kept == found

    def again():
        raise AssertionError("there is a verdict already")

    assert decision.find_verdict(job, again) == found
    assert decision.wait_for_verdict(job, 5.0, lambda: False) == found
    decided = decision.with_verdict(job, found).settings["declaration"]["trainer"]
    assert (decided["precision"], decided["xla"]) == ("mixed_bfloat16", False)
    # What was declared stays: only `auto` is decided.
    declared = _job(tmp_path, precision="mixed_float16", xla="auto")
    decided = decision.with_verdict(declared, dataclasses.replace(found, way=COMPILED)).settings["declaration"]
    assert (decided["trainer"]["precision"], decided["trainer"]["xla"]) == ("mixed_float16", True)


@pytest.mark.unit
def test_a_trial_that_dies_leaves_the_plain_way(tmp_path):
    def die():
        raise errors.TaskFailedError("task speed_trial-0 was killed by SIGKILL; its log ends with:\n  much", todo="see")

    found = decision.find_verdict(_job(tmp_path, xla="auto"), die)
    assert found is not None
    assert found.way == PLAIN
    assert found.text == (
        "xla false, as no trial could be made: task speed_trial-0 was killed by SIGKILL; its log ends with:"
    )

    def refuse():
        raise errors.UserCodeError("no network", todo="return one")

    with pytest.raises(errors.UserCodeError):
        decision.find_verdict(_job(tmp_path / "other", xla="auto"), refuse)


@pytest.mark.unit
def test_a_worker_of_another_cluster_does_not_wait_for_ever(tmp_path):
    with pytest.raises(errors.TaskStalledError, match="has not decided"):
        decision.wait_for_verdict(_job(tmp_path, xla="auto"), 0.1, lambda: False)
    assert decision.wait_for_verdict(_job(tmp_path, xla="auto"), 5.0, lambda: True) is None


@pytest.mark.unit
def test_the_trial_has_what_a_worker_will_have():
    workers = Distribution.parse_obj({"train": {"strategy": "multi_worker_mirrored", "workers": 64}})
    (task,) = speed_trial_task(workers, 1, shares=True)
    assert (task.type, task.cpus, task.threads) == ("speed_trial", (), 1)
    assert speed_trial_task(workers, 1, shares=False)[0].threads is None


@pytest.fixture
def tried(tmp_path, digits, settings, monkeypatch):
    """Tries whether to compile, as briefly as can be, and returns the verdict."""
    from tfx.types import artifact_utils, standard_artifacts

    from tfx_estimator.components.trainer.protocol.events import ProgressWriter
    from tfx_estimator.components.trainer.protocol.task_spec import SPEED_TRIAL, TaskSpec
    from tfx_estimator.components.trainer.speed_trial import trial
    from tfx_estimator.components.trainer.task.context import TaskContext

    monkeypatch.setattr(trial, "_ROUNDS", 2)
    monkeypatch.setattr(trial, "_SLICE_SECONDS", 0.02)

    def run(path):
        declared = settings({"path": path, "model": "tests.bench.networks:dense", "xla": "auto"}, path=path)
        outputs = {"model": [standard_artifacts.Model()], "model_run": [standard_artifacts.ModelRun()]}
        properties = {"train_args": json.dumps({"num_steps": 60}), "eval_args": "{}", "custom_config": "null"}
        jsonify = artifact_utils.jsonify_artifact_dict
        job = Job(jsonify(digits), jsonify(outputs), properties, str(tmp_path), declared.to_dict(), path)
        trial.run(TaskContext(job, TaskSpec(SPEED_TRIAL, 0, 1), ProgressWriter(str(tmp_path / "progress"))))
        return verdict.read(str(tmp_path))

    return run


@pytest.mark.parametrize("path", ["estimator", "keras"])
def test_a_trial_times_the_step_of_a_path(path, tried):
    found = tried(path)
    assert set(found.measured) == {"float32", "float32 with XLA"}
    for each in found.measured.values():
        assert 0 < each["cpu_micros_per_example"] < 1e5
    assert found.way.xla == (found.measured["float32 with XLA"]["gain"] >= 1.05)


def test_a_trial_whose_ways_take_long_to_make_ready_tries_no_more(tried, monkeypatch):
    from tfx_estimator.components.trainer.speed_trial import trial

    monkeypatch.setattr(trial, "_MOST_READYING_SECONDS", 0.0)
    found = tried("keras")
    assert list(found.measured) == ["float32"]
    assert found.way == PLAIN
    assert re.search(r"float32 with XLA left out: the ways before it took \d+ s to make ready, over 0 s", found.text)
