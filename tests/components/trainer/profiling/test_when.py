"""The start and end of a profile, and a profile that cannot be written."""

from __future__ import annotations

import itertools
import json

import pytest

from tests.folders import contents, write_files
from tfx_estimator.components.trainer.profiling import profiler as module
from tfx_estimator.components.trainer.profiling.profiler import Profiler, drop_others
from tfx_estimator.components.trainer.protocol.events import Event, ProgressReader, ProgressWriter
from tfx_estimator.components.trainer.protocol.measurement import MEASURE, Window
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, TaskSpec
from tfx_estimator.pipeline.config.runtime import Profile
from tfx_estimator.pipeline.config.trainer import TrainerSection


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Makes a profiler of steps 100 to 119, and records its actions and notices."""
    did, progress = [], tmp_path / "progress"
    section = TrainerSection(model="mnist_cnn", profile=Profile())

    def make():
        made = Profiler.of(section, str(tmp_path), TaskSpec(CHIEF, 0, 1), ProgressWriter(str(progress)))
        monkeypatch.setattr(made, "_report", lambda steps: did.append(steps))
        monkeypatch.setattr(module.tf.profiler.experimental, "start", lambda folder: did.append("start"))
        monkeypatch.setattr(module.tf.profiler.experimental, "stop", lambda: did.append("stop"))
        return made

    def notices() -> list[str]:
        return [each["text"] for each in ProgressReader(str(progress)).read() if each["event"] is Event.NOTICED]

    return make, did, notices


def _go(profiler, *steps: int, ends: bool = False) -> None:
    """Simulates a training that starts at the first step, with executions that end at the others."""
    profiler.begin(steps[0])
    for step, after in itertools.pairwise(steps):
        profiler.before_step(step)
        profiler.after_step(after, {})
    if ends:
        profiler.end(steps[-1], {})


def test_a_worker_with_its_own_step_count_ends_by_that(make):
    profiler, did = make[0](), make[1]
    _go(profiler, 0, 100, 111)
    # The global step includes other workers' steps.
    profiler.end(220, {})
    assert did == ["start", "stop", 11]


@pytest.mark.parametrize(("start", "first"), [(0, 100), (50, 100), (95, 105), (500, 510)])
def test_a_resumed_training_warms_up_first(make, start, first):
    profiler, did = make[0](), make[1]
    _go(profiler, start, first)
    assert profiler.edges == (first, first + 20)
    assert did == []
    profiler.before_step(first)
    profiler.after_step(first + 19, {})
    assert did == ["start"]
    profiler.before_save(first + 20)
    assert did == ["start", "stop", 20]
    profiler.after_step(first + 20, {})
    profiler.end(first + 30, {})
    assert did == ["start", "stop", 20]


def _laid(folder, declared):
    write_files(folder, {"summary.json": json.dumps({"steps": 20, **declared})})


@pytest.mark.parametrize(
    ("declared", "again"),
    [
        ({"declared": Profile().dict()}, []),
        ({"declared": Profile(start_step=50).dict()}, ["start", "stop", 20]),
        ({}, ["start", "stop", 20]),
    ],
)
def test_an_existing_profile_is_repeated_if_it_is_of_other_steps(make, tmp_path, declared, again):
    _laid(tmp_path / "profile" / "chief-0", declared)
    profiler, (_, did, notices) = make[0](), make
    _go(profiler, 200, 210, 230, ends=True)
    assert (did, notices()) == (again, [])


def test_a_resumed_training_drops_profiles_of_other_steps(tmp_path):
    def kept():
        return sorted(path.name for path in (tmp_path / "profile").iterdir())

    drop_others(str(tmp_path), Profile())
    _laid(tmp_path / "profile" / "chief-0", {"declared": Profile().dict()})
    _laid(tmp_path / "profile" / "worker-0", {"declared": Profile(steps=9).dict()})
    # From a task that was killed during the profile, and from one that was writing its summary.
    (tmp_path / "profile" / "worker-1" / "plugins").mkdir(parents=True)
    write_files(tmp_path / "profile" / "worker-2", {"summary.json": "{"})
    drop_others(str(tmp_path), Profile())
    assert kept() == ["chief-0"]
    # From the user's own code, which profiles as well.
    theirs = dict.fromkeys(("plugins/profile/run.xplane.pb", "timeline-100.json"), b"theirs")
    write_files(tmp_path / "profile", theirs)
    drop_others(str(tmp_path), None)
    assert contents(tmp_path / "profile") == theirs
    assert kept() == ["plugins", "timeline-100.json"]


def test_a_training_that_is_too_short_gives_one_notice(make):
    profiler, (_, did, notices) = make[0](), make
    _go(profiler, 0, 90, ends=True)
    profiler.end(90, {})
    assert did == []
    assert notices() == ["trainer.profile: training ended at step 90, before the profile began, after step 100"]


@pytest.mark.parametrize("fails", ["start", "stop"])
def test_training_continues_if_it_cannot_be_written(make, monkeypatch, fails):
    def fail(*_):
        raise module.tf.errors.PermissionDeniedError(None, None, "read-only file system")

    profiler, (_, _did, notices) = make[0](), make
    monkeypatch.setattr(module.tf.profiler.experimental, fails, fail)
    _go(profiler, 0, 100, 120, 140, ends=True)
    (text,) = notices()
    assert "training continues: read-only file system" in text


def test_a_pipeline_is_profiled_and_a_short_one_leaves_no_file_or_notice(tmp_path, monkeypatch):
    section = TrainerSection(train_steps=9, pipeline_parallel={"stages": 2, "microbatches": 2})
    arguments = str(tmp_path), TaskSpec(CHIEF, 0, 1), ProgressWriter(str(tmp_path / "progress"))
    profiler = Profiler.of(section, *arguments)
    assert profiler.edges == (20, 25)
    _go(profiler, 0, 9, ends=True)
    assert list(tmp_path.iterdir()) == []
    # During a measurement of `bench` its steps are not profiled.
    monkeypatch.setenv(MEASURE, Window(str(tmp_path), 1, 1, (0,)).to_environment())
    assert Profiler.of(section, *arguments) is None
