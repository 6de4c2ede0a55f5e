"""The supervisor itself ends, or the machine fails."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import signal
import socket
import subprocess
import threading
import time

import psutil
import pytest
from tfx.types import artifact_utils

from tests.faults.conftest import INTERVAL, SERVED, STEPS
from tests.faults.injector import STARTING, TRAINING, Fault, latest_step
from tests.folders import small_file_system
from tests.root import ROOT, start_python
from tests.waiting import wait_until
from tfx_estimator.components.trainer.cluster import plan
from tfx_estimator.pipeline.base import errors

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

ALONE, MWMS = {"strategy": "one_device"}, {"strategy": "multi_worker_mirrored"}
# An Estimator's, with two asynchronous workers.
ASYNCHRONOUS = {"strategy": "parameter_server"}
PATHS = ("estimator", "keras", "keras_custom_loop")
# Enough steps that a signal arrives during training.
MANY = 2000


class Supervised:
    """A training whose supervisor is a process that the test may end."""

    def __init__(
        self, faulty, digits, steps: int = MANY, path: str = "estimator", interval: int = INTERVAL, train=MWMS
    ) -> None:
        settings = faulty.settings(train, path)
        settings.declaration["trainer"].update(train_steps=steps, save_checkpoints_steps=interval)
        self.root = faulty.training.root
        self.job = faulty.training.root.parent / "job.json"
        self.values = {
            "root": str(self.root),
            "inputs": artifact_utils.jsonify_artifact_dict(digits),
            "settings": dataclasses.asdict(settings),
        }
        self.executions = 0

    def start(self) -> subprocess.Popen:
        self.job.write_text(json.dumps({**self.values, "executions": self.executions}))
        self.executions += 1
        self.run = start_python("-m", "tests.faults.train", str(self.job), cwd=ROOT)
        return self.run

    def wait_for_step(self, step: int) -> list[psutil.Process]:
        """Waits until the chief has done the step; returns the processes of the supervisor and its tasks."""

        def is_done() -> bool:
            assert self.run.poll() is None, f"the supervisor has ended with {self.run.returncode} before step {step}"
            return latest_step(self.root) >= step

        wait_until(is_done, f"step {step}", 90, every=0.05)
        supervisor = psutil.Process(self.run.pid)
        return [supervisor, *supervisor.children(recursive=True)]

    def checkpoint(self) -> int:
        names = self.root.glob("training/*/model.ckpt-*.index")
        return max(int(path.stem.rsplit("-", 1)[-1]) for path in names)


def _ended(path, train, number, *marks):
    return pytest.param(path, train, number, marks=marks, id=f"{path}-{train['strategy']}-{number.name}")


@pytest.mark.parametrize(
    ("path", "train", "number"),
    [
        _ended("estimator", MWMS, signal.SIGTERM),
        _ended("estimator", MWMS, signal.SIGINT, pytest.mark.long),
        *(_ended(path, MWMS, signal.SIGTERM, pytest.mark.long) for path in PATHS[1:]),
        *(_ended(path, SERVED, signal.SIGTERM, pytest.mark.long) for path in PATHS[1:]),
        *(_ended(path, MWMS, signal.SIGKILL, pytest.mark.long) for path in PATHS[:2]),
        _ended("keras", SERVED, signal.SIGKILL, pytest.mark.long),
    ],
)
def test_an_ended_supervisor_leaves_a_checkpoint_and_no_task(faulty, digits, path, train, number):
    # The signal causes a checkpoint outside of the usual interval.
    interval = INTERVAL if number == signal.SIGKILL else MANY
    supervised = Supervised(faulty, digits, path=path, interval=interval, train=train)
    run = supervised.start()
    tasks = supervised.wait_for_step(INTERVAL + 5)
    os.kill(run.pid, number)
    _, stderr = run.communicate(timeout=60)
    assert run.returncode == (-9 if number is signal.SIGKILL else 128 + number)
    _, alive = psutil.wait_procs(tasks, timeout=10)
    assert not alive
    saved = supervised.checkpoint()
    if number != signal.SIGKILL:
        assert INTERVAL + 5 <= saved < MANY
        assert f"the last checkpoint is of step {saved}" in stderr
    faulty.rows.append((f"{number.name} supervisor", path, train["strategy"], run.returncode, saved, 0, "", "", ""))


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "train"), [*((path, MWMS) for path in PATHS), *((path, SERVED) for path in PATHS if path != "estimator")]
)
def test_the_next_run_resumes_where_a_signal_ended_the_last_one(faulty, digits, path, train):
    # Parameter servers' workers are not notified: the signal would arrive during the checkpoint of the awaited step.
    interval = INTERVAL if train is MWMS else MANY
    supervised = Supervised(faulty, digits, MANY // 2, path, interval, train)
    run = supervised.start()
    supervised.wait_for_step(INTERVAL)
    run.terminate()
    run.communicate(timeout=60)
    saved = supervised.checkpoint()
    # With multi-worker, a usual checkpoint may be of the awaited step.
    assert INTERVAL + (train is MWMS) <= saved < MANY // 2
    again = supervised.start()
    stdout, stderr = again.communicate(timeout=150)
    assert again.returncode == 0, stderr
    result = json.loads(stdout.splitlines()[-1])
    assert result["first_step"] == saved
    assert result["last_step"] == MANY // 2
    assert result["eval_accuracy"] > 0.9


@pytest.mark.long
def test_a_second_interrupt_ends_at_once(faulty, digits):
    supervised = Supervised(faulty, digits)
    run = supervised.start()
    tasks = supervised.wait_for_step(INTERVAL)
    psutil.Process(run.pid).send_signal(signal.SIGINT)
    # Stopped tasks cannot respond to the first.
    for task in tasks:
        if task.pid != run.pid and "chief-0" in " ".join(task.cmdline()):
            task.suspend()
    time.sleep(1)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=15)
    assert run.returncode == -signal.SIGINT
    _, alive = psutil.wait_procs(tasks, timeout=10)
    assert not alive


@pytest.mark.long
def test_a_taken_port_costs_a_restart_on_fresh_ports(faulty, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        free_ports, calls = plan.free_ports, []

        def first_one_is_taken(count: int) -> list[int]:
            calls.append(count)
            return [taken.getsockname()[1], *free_ports(count - 1)] if len(calls) == 1 else free_ports(count)

        monkeypatch.setattr(plan, "free_ports", first_one_is_taken)
        _, model_run = faulty.run("port taken", faulty.settings(MWMS, network="host"))
    assert model_run.get_float_custom_property("last_step") == STEPS
    assert model_run.get_float_custom_property("restarts") == 1
    assert "gRPC" in model_run.get_string_custom_property("history")


@pytest.mark.parametrize(
    ("path", "whole"),
    [
        ("estimator", False),
        ("keras", True),
        *(
            pytest.param(path, whole, marks=pytest.mark.long)
            for path, whole in (("estimator", True), ("keras", False), ("keras_custom_loop", True))
        ),
    ],
)
def test_a_full_disk_is_named_first(faulty, tmp_path, path, whole):
    """With `whole` not even the error's file can be written."""
    small = tmp_path / "small"

    done = threading.Event()

    def keep_full(file: int) -> None:
        """Takes what the training frees, as with a part of a checkpoint."""
        while not done.is_set():
            with contextlib.suppress(OSError):
                os.write(file, bytes(4096))

    def fill(process: psutil.Process) -> None:
        process.suspend()
        file = os.open(small / "filler", os.O_CREAT | os.O_WRONLY)
        files.callback(os.close, file)
        with contextlib.suppress(OSError):
            while os.write(file, bytes(4096)):
                pass
        filling = threading.Thread(target=keep_full, args=[file])
        filling.start()
        files.callback(filling.join)
        files.callback(done.set)
        process.resume()

    with small_file_system(small, "90m" if whole else "9m"):
        faulty.training.root = small / "Trainer"
        faults = [Fault("chief-0", TRAINING, fill)] if whole else []
        with contextlib.ExitStack() as files, pytest.raises(errors.TaskFailedError) as caught:
            faulty.run("disk full", faulty.settings(ALONE, path), *faults)
        assert caught.value.what.startswith(f"No space left on device: the disk of {small}/Trainer/training/")
        assert ("could not write why" in caught.value.what) is whole
        assert "make room there" in caught.value.todo


@pytest.mark.parametrize(
    ("path", "train"),
    [
        pytest.param(path, train, marks=marks, id=f"{path}-{train['strategy']}")
        for path, train, *marks in (
            ("estimator", ALONE),
            ("estimator", MWMS, pytest.mark.long),
            ("estimator", ASYNCHRONOUS, pytest.mark.long),
            ("keras", ALONE, pytest.mark.long),
            ("keras_custom_loop", ALONE, pytest.mark.long),
            *((path, train, pytest.mark.long) for path in PATHS[1:] for train in (MWMS, SERVED)),
        )
    ],
)
def test_a_corrupt_checkpoint_is_skipped(faulty, caplog, path, train):
    def corrupt(process: psutil.Process) -> None:
        # Killed only after the damage, or the supervisor might look first.
        process.suspend()
        # A complete checkpoint has an index; each parameter server writes a part.
        index = max(
            faulty.training.root.glob("training/*/model.ckpt-*.index"), key=lambda path: int(path.stem.split("-")[1])
        )
        newest = max(index.parent.glob(f"{index.stem}.data-*"), key=lambda path: path.stat().st_size)
        with open(newest, "r+b") as file:
            file.truncate(newest.stat().st_size // 2)
        corrupted.append(index.stem)
        process.kill()

    corrupted: list[str] = []
    fault = Fault("chief-0", TRAINING, corrupt, step=2 * INTERVAL + 5)
    _, model_run = faulty.run("corrupt checkpoint", faulty.settings(train, path), fault)
    # Each asynchronous worker completes its step, before a checkpoint and at the end.
    beyond = 2 if train is ASYNCHRONOUS else 0
    assert STEPS <= model_run.get_float_custom_property("last_step") <= STEPS + beyond
    # With parameter servers, the workers continue while the chief saves.
    most = 3 * INTERVAL if train is ASYNCHRONOUS else 2 * INTERVAL
    assert INTERVAL - beyond <= model_run.get_float_custom_property("lost_steps") <= most
    assert model_run.get_float_custom_property("restarts") == 1
    assert model_run.get_float_custom_property("eval_accuracy") > 0.9
    assert corrupted
    assert any(corrupted[0] in record.message and "damaged" in record.message for record in caplog.records)


@pytest.mark.long
def test_after_the_last_restart_the_error_names_the_task_and_its_log(faulty):
    settings = faulty.settings(MWMS, max_restarts=1)
    first = Fault("worker-0", STARTING, psutil.Process.kill)
    faults = [first, Fault("worker-0", STARTING, psutil.Process.kill, after=first)]
    with pytest.raises(errors.TaskFailedError, match=r"after 1 restarts.*worker-0 was killed by SIGKILL") as caught:
        faulty.run("killed twice, one restart", settings, *faults)
    assert "worker-0.attempt-" in str(caught.value)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("path", "count"), [("estimator", 20), ("keras", 10), ("keras_custom_loop", 10)])
def test_kills_at_random_moments(faulty, path, count):
    chance = random.Random(7)
    settings = faulty.settings(MWMS, path, max_restarts=2 * count, evaluator=False)
    # The batch is large, so that steps are slow enough for the kills.
    settings.declaration["trainer"].update(train_steps=(steps := INTERVAL * (count + 4)), global_batch_size=512)
    kills: list[Fault] = []
    for index in range(count):
        victim, step = chance.choice(["chief-0", "worker-0"]), INTERVAL * (index + 1) + chance.randrange(20)
        kills.append(Fault(victim, TRAINING, psutil.Process.kill, step=step, after=kills[-1] if kills else None))
    _, model_run = faulty.run(f"{count} kills", settings, *kills)
    number = model_run.get_float_custom_property
    assert number("last_step") == steps
    assert number("restarts") == count
    history = json.loads(model_run.get_string_custom_property("history"))
    assert all(restart["lost_steps"] is None or restart["lost_steps"] <= INTERVAL for restart in history)

    faulty.training.root = faulty.training.root.with_name("undisturbed")
    _, undisturbed = faulty.training.run(settings)
    accuracy = undisturbed.get_float_custom_property("eval_accuracy")
    assert accuracy > 0.9
    # The same training, bit for bit.
    assert number("eval_accuracy") == pytest.approx(accuracy, abs=1e-6)
