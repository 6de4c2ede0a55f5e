"""Reading a pod's status and the files of its tasks, without a cluster."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.platforms.training_jobs.cluster import Cluster, ended, pod
from tests.waiting import wait_until
from tfx_estimator.components.trainer.supervisor.report import Report
from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.platforms.follow import UnavailableError
from tfx_estimator.pipeline.platforms.training_jobs import failures as failures_module
from tfx_estimator.pipeline.platforms.training_jobs import pod as pod_entry
from tfx_estimator.pipeline.platforms.training_jobs import pods as pods_module
from tfx_estimator.pipeline.platforms.training_jobs.failures import Failures
from tfx_estimator.pipeline.platforms.training_jobs.kinds import TF_JOB
from tfx_estimator.pipeline.platforms.training_jobs.pods import Pods
from tfx_estimator.pipeline.platforms.training_jobs.progress import Progress


@pytest.fixture
def pods(tmp_path: Path):
    # Its logs are not available.
    found = Pods(Cluster("a"), str(tmp_path / "pods"))  # type: ignore[arg-type]
    yield found
    found.end(0)


@pytest.mark.parametrize(
    ("failed", "cause", "message"),
    [
        (pod("Failed", state=ended(137)), "was killed by SIGKILL", "(nothing)"),
        (pod("Failed", state=ended(1, message="a\nb: no module")), "ended with exit code 1", "b: no module"),
        (pod("Failed", state=ended(137, reason="OOMKilled")), "ended: OOMKilled (exit code 137)", "worker.memory_gb"),
        (pod("Failed", status={"reason": "Evicted", "message": "disk"}), "ended: Evicted", "disk"),
        (pod("Running", restartCount=1, lastState=ended(3)), "ended with exit code 3", "digits-worker-1"),
        (pod("Failed", state=ended(138)), "ended with exit code 138", "digits-worker-1"),
    ],
)
def test_a_failure_is_reported_once_in_words(pods, failed, cause, message):
    assert pods.take(pod("Pending")) is None
    failure = pods.take(failed)
    assert (failure.task, failure.cause) == ("worker-1", cause)
    assert message in str(failure.error(TF_JOB))
    assert pods.take(failed) is None
    assert pods.take_all([failed]) == [None]
    assert failure.from_peer == (failure.code == 138)


def test_a_tasks_error_is_restored_from_its_record(pods, tmp_path, monkeypatch):
    monkeypatch.setattr(pod_entry, "_MESSAGE", str(tmp_path / "message"))
    for text in ("your loss is no number", "long " * 2000, 'ü"\n' * 3000):
        error = errors.UserCodeError(text, expected="a number", todo="mend it")
        pod_entry._write_message(error)
        message = (tmp_path / "message").read_text()
        assert len(message) <= 4096
        found = pods.take(pod("Failed", uid=text[:9], state=ended(4, message=message))).error(TF_JOB)
        assert isinstance(found, errors.UserCodeError)
        assert found.what[:9].strip() in text
    assert found.exit_code == 4


def printed(*numbers: int) -> bytes:
    """Returns log lines, two per second, every fourth pair with odd nanoseconds."""
    stamps = [f"2026-11-23T01:00:{each // 2:02d}.{5 if each % 4 < 2 else each:09d}+01:00" for each in numbers]
    return b"".join(f"{stamp} line {each}\n".encode() for stamp, each in zip(stamps, numbers))


class Logs:
    """A cluster whose logs are cut, end or hang.

    Args:
        *streams: Responses in turn; None is a lost connection, and an event one that hangs until it is set.
    """

    kind = TF_JOB

    def __init__(self, *streams: Any) -> None:
        self.streams = list(streams)
        self.asked: list[str] = []

    def log(self, name: str, since: str) -> Iterator[bytes]:
        self.asked.append(since)
        for part in self.streams.pop(0) if self.streams else ():
            if isinstance(part, threading.Event):
                part.wait(30)
            elif part is None:
                raise UnavailableError(name)
            else:
                yield part


def wait_for_last(logs: Logs) -> None:
    wait_until(lambda: not logs.streams, lambda: f"the last connection for a log; {len(logs.asked)} were asked for", 30)


def test_a_restarted_container_has_its_own_log(tmp_path, monkeypatch):
    monkeypatch.setattr(pods_module, "_LOG_WAIT", 0.01)
    # Cut more often than it is retried without output.
    logs = Logs(*[[None]] * 12, [printed(0), None])
    found = Pods(logs, str(tmp_path))  # type: ignore[arg-type]
    monkeypatch.setattr(pods_module, "_LONGEST_LOG_WAIT", 0.01)
    found.take(pod("Running"))
    wait_for_last(logs)
    logs.streams = [[printed(7)]]
    failure = found.take(pod("Running", restartCount=1, lastState=ended(3)))
    found.end(30)
    assert Path(failure.log).read_text() == "line 0\n"
    assert (tmp_path / "digits-worker-1.1.1.log").read_text() == "line 7\n"


def test_a_log_continues_wherever_its_connection_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(pods_module, "_LOG_WAIT", 0.01)
    logs = Logs(
        # Some end early without an error.
        [printed(0)[:9], printed(0)[9:] + printed(1, 2)],
        [printed(2, 3, 4, 5)[:-3]],
        # Starting at the requested second, or after a rotation of the log.
        [printed(4, 5, 6), None],
        [printed(8, 9)],
    )
    found = Pods(logs, str(tmp_path))  # type: ignore[arg-type]
    found.take(pod("Running"))
    wait_for_last(logs)
    found.take(pod("Succeeded", state=ended(0)))
    found.end(30)
    wanted = "".join(f"line {each}\n" for each in (0, 1, 2, 3, 4, 5, 6, 8, 9))
    assert (tmp_path / "digits-worker-1.1.log").read_text() == wanted
    assert logs.asked[:4] == ["", *(f"2026-11-23T00:00:0{each}Z" for each in (1, 2, 3))]


def test_another_process_continues_a_log_where_the_last_one_stopped(tmp_path):
    first = Pods(Logs([printed(0, 1, 2), None]), str(tmp_path))  # type: ignore[arg-type]
    first.take(pod("Running"))
    log = tmp_path / "digits-worker-1.1.log"
    wait_until(lambda: log.exists() and log.read_text() == "line 0\nline 1\nline 2\n", "the pod's log", 30)
    first.end(0.0)
    # The log has been rotated since.
    logs = Logs([printed(2, 3)])
    found = Pods(logs, str(tmp_path))  # type: ignore[arg-type]
    found.take(pod("Succeeded", state=ended(0)))
    found.end(30)
    assert log.read_text() == "line 0\nline 1\nline 2\nline 3\n"
    assert logs.asked == ["2026-11-23T00:00:01Z"]


def test_pods_report_what_they_wait_for(pods):
    pulls = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    pods.take(pod("Pending", state=pulls))
    assert list(pods.waiting()) == ["worker-1 ImagePullBackOff: no such image"]
    no_node = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    pods.take(pod("Pending", status={"conditions": [no_node]}))
    assert list(pods.waiting()) == ["worker-1 Unschedulable: 0/3 nodes"]
    pods.take(pod("Running"), deleted=True)
    assert (list(pods.waiting()), pods.count()) == ([], 0)


def write(logs: Path, attempt: int, *steps: int) -> None:
    with (logs / f"chief-0.attempt-{attempt}.progress.jsonl").open("a") as file:
        for step in steps:
            file.write(json.dumps({"event": "step", "time": attempt * 1000 + step, "step": step}) + "\n")


def test_restarts_are_counted_with_their_cost(tmp_path):
    write(tmp_path, 3, 0, 900)
    progress = Progress(str(tmp_path), Report(10, 60), after=3)
    write(tmp_path, 4, 0, 20, 40)
    progress.restarted("worker-0 was killed by SIGKILL", "its pod was started again")
    write(tmp_path, 5, 30, 50)
    progress.read()
    # And one that the pod's own supervisor handled.
    (tmp_path / "chief-0.attempt-5.error.json").write_text('{"type": "UnavailableError"}')
    write(tmp_path, 6, 30, 60)
    outcome = progress.outcome()
    assert (outcome.first_step, outcome.last_step, outcome.extra_steps) == (0, 60, 0)
    assert [(each.cause, each.step, each.lost_steps) for each in outcome.restarts] == [
        ("worker-0 was killed by SIGKILL", 40, 10),
        ("chief-0 failed: UnavailableError", 50, 20),
    ]
    # 40, 20 and 30 steps in as many seconds.
    assert outcome.examples_per_second == 10


def test_a_pod_that_gives_up_waiting_for_another_is_a_restart_only_once_all_have_run(pods, tmp_path, monkeypatch):
    monkeypatch.setattr(failures_module, "_CAUSE_SECONDS", 0.0)
    monkeypatch.setattr(failures_module, "_CONSEQUENCE_SECONDS", 0.0)
    failures = Failures("ExitCode", Progress(str(tmp_path), Report(10, 60), after=0), TF_JOB)

    def fail(uid: str, code: int = 138) -> int:
        failures.note(pods.take(pod("Failed", uid=uid, state=ended(code))))
        time.sleep(0.01)
        failures.settle()
        return failures.restarts

    assert [fail(uid) for uid in "abc"] == [0, 0, 0]
    # A killed pod was not waiting.
    assert fail("d", 137) == 1
    failures.all_run()
    # All of them may wait again for a pod that was lost with its node.
    assert [fail(uid) for uid in "efg"] == [2, 2, 2]
    failures.all_run()
    assert fail("h") == 3


def test_a_retryable_failure_has_its_own_exit_code_if_requested(monkeypatch):
    error = errors.TaskFailedError("lost a peer")
    error.retryable = True
    assert errors.exit_code_of(error) == 5
    monkeypatch.setenv(errors.RETRYABLE, "138")
    assert errors.exit_code_of(error) == 138
    assert errors.exit_code_of(errors.TaskFailedError("of its own")) == 5
