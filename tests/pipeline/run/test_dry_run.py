"""Dry runs of the user's code in real processes: failures, deadlines, crashes, and when a dry run is repeated."""

from __future__ import annotations

import os
import signal
import threading
import time

import psutil
import pytest

from tests.e2e.conftest import Workdir
from tests.waiting import wait_until
from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.run import dry_run
from tfx_estimator.pipeline.run.dry_run import Memory

pytestmark = pytest.mark.timeout(400)


def test_a_mistake_is_reported_with_its_line_before_ingestion(declare, tmp_path, capfd):
    line = "assert mode != 'eval', 'only in an evaluation'"
    workdir = Workdir(tmp_path / "runs")
    # In its own process: see tests/e2e/test_bad_input.py.
    assert main(["run", "--no-report", declare(line), "--workdir", str(workdir.path)]) == 4
    output = "".join(capfd.readouterr())
    assert "Traceback" not in output
    assert "failed: AssertionError: only in an evaluation" in output
    assert f'File "{tmp_path}/mine.py", line 8, in model_fn\n' in output
    assert f"    {line}\n" in output
    assert workdir.states("tried") == {}
    assert not (workdir.path / "tried" / "artifacts").exists()
    (log,) = workdir.path.glob("tried/logs/*/dry_run/*.log")
    assert f"fix the code above, or see {log}" in output


def test_missing_data_are_reported_before_the_dry_run_ends(fresh_tasks, declare, tmp_path, capfd):
    file, data = declare("import time; time.sleep(300)"), "{dataset: mnist, download: false, data_dir: empty}"
    assert main(["run", "--no-report", file, "--workdir", "runs", "--set", f"data={data}"]) == 3
    assert "data set mnist/3.0.1 is not prepared in " in capfd.readouterr().err
    assert Workdir(tmp_path / "runs").states("tried") == {}


@pytest.mark.parametrize(
    ("exclude", "message"),
    [
        pytest.param("[]", "trainer.warm_start: none of the weights in ", marks=pytest.mark.long),
        pytest.param("[logit/*]", "trainer.warm_start.exclude: no variable of the model", marks=pytest.mark.long),
    ],
)
def test_warm_start_weights_of_another_network_are_reported_before_ingestion(declare, tmp_path, exclude, message):
    import tensorflow as tf

    checkpoint = tf.train.Checkpoint(model=tf.Variable([1.0], name="other")).write(str(tmp_path / "weights"))
    file = declare(trainer=f"model: mnist_cnn, warm_start: {{checkpoint: {checkpoint}, exclude: {exclude}}}")
    workdir = Workdir(tmp_path / "runs")
    assert message in workdir.run(file, code=4, dry_run=True)
    assert not (workdir.path / "tried" / "artifacts").exists()


@pytest.mark.parametrize(
    ("verb", "begins", "message", "offers"),
    [
        (["validate", "--deep"], "trying the code of ", "the dry run (its start) made no progress for 0 s", True),
        (["estimate"], "tfx-estimator: ", "the estimate (its start) made no progress", False),
    ],
    ids=["dry run", "estimate"],
)
def test_a_dry_run_and_an_estimate_have_a_deadline(
    fresh_tasks, declare, cli, monkeypatch, verb, begins, message, offers
):
    monkeypatch.setattr("tfx_estimator.pipeline.run.dry_run._QUIET_SECONDS", 0.3)
    output = cli(*verb, declare(), "--set", "trainer.stall_timeout=0.2", code=4)
    assert output.err.startswith(begins)
    assert message in output.err
    assert ("--no-dry-run" in output.err) is offers
    assert "ok" not in output.out


@pytest.mark.long
def test_an_endless_loop_is_reported_long_before_the_deadline(deep, tmp_path):
    begun = time.monotonic()
    # A training's short limit does not apply to the dry run, which starts TensorFlow.
    stderr = deep(4, "trainer.stall_timeout=10", line="while True: pass").err
    assert "; your code was running:\n" in stderr
    assert f'  File "{tmp_path}/mine.py", line 8, in model_fn\n' in stderr
    assert 55 < time.monotonic() - begun < 290


@pytest.mark.long
def test_a_thread_that_is_left_running_is_not_waited_for(declare):
    left = "import threading; threading.Thread(target=__import__('time').sleep, args=(600,)).start()"
    with dry_run.begin(load(declare(left))) as trial:
        tried = trial.wait()
        # Its process is still running.
        assert trial._process.code is None
    assert len(tried.parts) == 3
    assert trial._process.code is not None


BREAKS = {
    "os._exit(0)": "ended, with exit code 0; your code was running:",
    "os.abort()": "was killed by SIGABRT; your code was running:",
    "import ctypes; ctypes.string_at(0)": "was killed by SIGSEGV; your code was running:",
    "sys.exit('enough')": "failed: SystemExit: enough",
    "params['absent']": "failed: KeyError: 'absent'",
    "features['image'] = tf.reshape(features['image'], [128, 784])": "failed: ValueError",
    # Fails only when the graph runs.
    "features['image'] = tf.gather(features['image'], labels + 900)": "failed: InvalidArgumentError: ",
}


@pytest.mark.long
@pytest.mark.parametrize("line", BREAKS)
def test_code_that_fails_or_ends_the_process_is_reported_with_its_line(deep, tmp_path, line):
    stderr = deep(4, line=line).err
    assert BREAKS[line] in stderr
    assert f'  File "{tmp_path}/mine.py", line 8, in model_fn\n' in stderr
    # Of the stack, only the user's lines are shown.
    assert "site-packages" not in stderr


PREPROCESSED = 'transform: {preprocessing_fn: "own_preprocessing:scaled"}\n'


@pytest.mark.unit
def test_a_dry_run_that_passed_is_not_repeated_until_the_code_changes(declare, tmp_path):
    def memory(*overrides: str) -> Memory:
        return Memory(load(str(tmp_path / "tried.yaml"), overrides), PipelineFolders(str(tmp_path / "runs"), "tried"))

    declare(more=PREPROCESSED, own_preprocessing="def scaled(inputs): pass\n")
    (tmp_path / "runs" / "tried").mkdir(parents=True)
    assert not memory().knows()
    memory().remember()
    assert memory().knows()
    # Longer training is the same code; under several replicas XLA may not compile it, nor the batches be divisible.
    assert memory("trainer.train_epochs=9", "trainer.seed=3", "data.splits.train='train[:50%]'").knows()
    memory("trainer.params.rate=0.1").remember()
    assert memory("trainer.params.rate=0.2").knows()
    replicas = "trainer.distribution.train={strategy: mirrored, devices: {cpu: 2}}"
    others = (replicas, *(f"trainer.{each}" for each in ("params.rate=0.0", "params.rate=5.0", "params.units=3")))
    for other in (*others, "trainer.keep_best=loss", "data.image_size=[8, 8]"):
        assert not memory(other).knows(), other
    declare("print()", more=PREPROCESSED, own_preprocessing="def scaled(inputs): pass\n")
    assert not memory().knows()
    declare(more=PREPROCESSED, own_preprocessing="def scaled(inputs): return inputs\n")
    assert not memory().knows()
    memory().remember()
    declare(more=PREPROCESSED, own_preprocessing="# Told.\ndef scaled(inputs):\n    '''Scales.'''\n    return inputs\n")
    assert memory().knows()
    # None of this is the user's code.
    built_in = ("trainer.model=mnist_cnn", "transform.preprocessing_fn=null")
    assert memory(*built_in).knows()
    for part in ("index", "data-00000-of-00001"):
        (tmp_path / f"weights.{part}").touch()
    assert not memory(*built_in, "trainer.warm_start.checkpoint=weights").knows()
    assert not memory(*built_in, "trainer.params.num_classes=3").knows()


@pytest.mark.unit
def test_a_dry_run_ends_with_its_context(fresh_tasks, declare):
    with dry_run.begin(load(declare())):
        # The child has this process's command line until it executes its own.
        wait_until(running, "a process of the dry run")
        # In the folder that the next run cleans up if this one is killed.
        assert os.listdir(os.environ["TMPDIR"]) == [f"tfx-estimator-{os.getuid()}"]
    assert not running()


def running() -> list[int]:
    """Returns the pids of the dry run's processes."""
    return [each.pid for each in psutil.Process().children(recursive=True) if "dry_run-0" in line(each)]


def line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.mark.long
@pytest.mark.parametrize("times", [1, 2])
def test_a_crash_of_native_code_is_retried_and_not_blamed_on_the_user(fresh_tasks, declare, tmp_path, times):
    def crash() -> None:
        seen: set[int] = set()
        while len(seen) < times:
            found = running()
            # The keeper's child exists at once, and imports TensorFlow for seconds.
            if len(found) > 1 and found[-1] not in seen:
                seen.add(found[-1])
                os.kill(found[-1], signal.SIGSEGV)
            time.sleep(0.05)

    with dry_run.begin(load(declare()), str(tmp_path / "logs")) as trial:
        crasher = threading.Thread(target=crash, daemon=True)
        crasher.start()
        if times == 1:
            assert trial.wait().parts
        else:
            message = "was killed by SIGSEGV, and no line of your code was running"
            with pytest.raises(dry_run.InconclusiveError, match=message) as raised:
                trial.wait()
            assert raised.value.todo.endswith(f"or see {tmp_path / 'logs' / 'dry_run-0.attempt-2.log'}")
        crasher.join(10)
