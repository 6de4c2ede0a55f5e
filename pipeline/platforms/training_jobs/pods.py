"""The pods of a training job: which wait, which failed and why, and their logs."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Optional

from tfx_estimator.components.trainer.protocol.task_spec import CHIEF
from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.platforms.follow import UnavailableError
from tfx_estimator.pipeline.platforms.training_jobs.api import Kube
from tfx_estimator.pipeline.platforms.training_jobs.failures import PodFailure
from tfx_estimator.pipeline.platforms.training_jobs.kinds import BY_NAME, Object

# Wait before a log is requested again after its connection has ended; doubled while it has nothing new.
_LOG_WAIT, _LONGEST_LOG_WAIT = 1.0, 15.0
_CONTAINERS = {kind.container for kind in BY_NAME.values()}


class Pods:
    """The last known pods of one training job, and their logs.

    Args:
        folder: For the logs.
    """

    def __init__(self, kube: Kube, folder: str) -> None:
        self._kube, self._folder, self._task = kube, folder, kube.kind.task
        os.makedirs(folder, exist_ok=True)
        self._seen: dict[str, Object] = {}
        # Both by the pod's uid and its container's restart count.
        self._failed: set[tuple[str, int]] = set()
        self._logs: dict[tuple[str, int], threading.Thread] = {}
        # The first is set when the pods are no longer followed; the second when the time for their logs is over.
        self._ending, self._over = threading.Event(), threading.Event()

    @property
    def running(self) -> int:
        """The number of tasks whose pods run, or have ended."""
        # A task's latest pod counts: a failed one may still exist.
        latest: dict[str, Object] = {}
        for pod in sorted(self._seen.values(), key=lambda each: each["metadata"].get("creationTimestamp", "")):
            latest[self._task(pod)] = pod
        return sum(not _waits(pod) for pod in latest.values())

    @property
    def chief_succeeded(self) -> bool:
        """True if the chief has succeeded: then the job has succeeded, even if its operator has not reported it yet."""
        return any(self._task(pod) == f"{CHIEF}-0" and _phase(pod) == "Succeeded" for pod in self._seen.values())

    def count(self) -> int:
        """Returns the number of pods."""
        return len(self._seen)

    def waiting(self) -> Iterator[str]:
        """Yields what each pod that does not run waits for."""
        for pod in self._seen.values():
            if not _waits(pod):
                continue
            state = _container(pod).get("state", {}).get("waiting", {})
            reasons = [f"{state.get('reason', '')}: {state.get('message', '')}"] if state.get("message") else []
            reasons += [
                f"{each.get('reason', '')}: {each['message']}"
                for each in pod.get("status", {}).get("conditions", ())
                if each.get("status") == "False" and each.get("message")
            ]
            if deleted := pod["metadata"].get("deletionTimestamp"):
                reasons = [f"should have ended by {deleted}: its node may be gone"]
            if reasons:
                yield f"{self._task(pod)} {reasons[0]}"

    def take(self, pod: Object, deleted: bool = False, with_log: bool = True) -> Optional[PodFailure]:
        """Records a pod's state.

        Args:
            with_log: Whether to follow its log; False for an outdated state, as a successor may have its name by now.

        Returns:
            Its failure, if that is new.
        """
        uid = pod["metadata"]["uid"]
        if deleted:
            self._seen.pop(uid, None)
        else:
            self._seen[uid] = pod
        container, status = _container(pod), pod.get("status", {})
        ends = _ends(pod)
        if with_log and (uid, ends) not in self._logs and _phase(pod) in ("Running", "Succeeded", "Failed"):
            name = pod["metadata"]["name"]
            args = name, uid, ends, PodLog(self._path(name, uid, ends))
            self._logs[uid, ends] = threading.Thread(target=self._follow, args=args, name="pod-log", daemon=True)
            self._logs[uid, ends].start()
        # Under some restart policies the container is restarted, and not the pod.
        before = bool(ends) and _phase(pod) != "Failed"
        state = container.get("lastState" if before else "state", {}).get("terminated", {})
        failed = _phase(pod) == "Failed" or (ends > 0 and state.get("exitCode", 0) != 0)
        if not failed or (uid, ends) in self._failed:
            return None
        self._failed.add((uid, ends))
        return PodFailure(
            self._task(pod),
            pod["metadata"]["name"],
            state.get("exitCode"),
            state.get("reason") or status.get("reason", ""),
            (state.get("message") or status.get("message") or "").strip(),
            self._path(pod["metadata"]["name"], uid, ends - before),
        )

    def take_all(self, pods: list[Object], with_log: bool = True) -> list[Optional[PodFailure]]:
        """Records the states of all existing pods."""
        uids = {pod["metadata"]["uid"] for pod in pods}
        for uid in self._seen.keys() - uids:
            del self._seen[uid]
        return [self.take(pod, with_log=with_log) for pod in pods]

    def end(self, seconds: float) -> None:
        """Waits for the logs to end, for at most the given seconds."""
        self._ending.set()
        deadline = time.monotonic() + seconds
        for thread in self._logs.values():
            thread.join(max(deadline - time.monotonic(), 0.0))
        self._over.set()

    def _path(self, name: str, uid: str, ends: int) -> str:
        again = f".{ends}" if ends else ""
        return os.path.join(self._folder, f"{name}.{uid[:8]}{again}.log")

    def _follow(self, name: str, uid: str, ends: int, log: PodLog) -> None:
        """Stores a container's log until its end, through lost connections."""
        wait = _LOG_WAIT
        while True:
            # If the container has ended before this request, the answer is the complete log.
            is_whole = self._ending.is_set() or self._has_ended(uid)
            before = log.since
            if self._read(name, log, is_whole) and is_whole:
                return
            if self._over.is_set() or (self._ending.is_set() and is_whole):
                return
            wait = min(2 * wait, _LONGEST_LOG_WAIT) if log.since == before else _LOG_WAIT
            self._ending.wait(wait)
            # The next container of this pod has the same name, so this log cannot be read any more.
            if _ends(self._seen.get(uid, {})) != ends:
                return

    def _read(self, name: str, log: PodLog, is_whole: bool) -> bool:
        """Reads a log from its last line on; returns True if it was read to its end."""
        try:
            log.take(self._kube.log(name, log.since), is_whole, self._over.is_set)
        except (UnavailableError, errors.TfxEstimatorError, OSError):
            # The training does not depend on its logs.
            return False
        return True

    def _has_ended(self, uid: str) -> bool:
        pod = self._seen.get(uid, {})
        return _phase(pod) in ("Succeeded", "Failed") or "terminated" in _container(pod).get("state", {})


def _phase(pod: Object) -> str:
    return pod.get("status", {}).get("phase", "")


def _waits(pod: Object) -> bool:
    """True if it has not started; or if it outlives its deletion, as on a lost node: its successor starts after it."""
    if _phase(pod) != "Running" or not (deleted := pod["metadata"].get("deletionTimestamp")):
        return _phase(pod) in ("Pending", "")
    return datetime.datetime.fromisoformat(deleted.replace("Z", "+00:00")).timestamp() < time.time()


def _container(pod: Object) -> Object:
    for each in pod.get("status", {}).get("containerStatuses", ()):
        if each.get("name") in _CONTAINERS:
            return each
    return {}


def _ends(pod: Object) -> int:
    """Returns its container's restart count; -1 if the pod is gone."""
    return _container(pod).get("restartCount", 0) if pod else -1


# A time and its line. Kubernetes' times have nanoseconds, with or without trailing zeros.
_STAMPED = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) (.*)", re.DOTALL)

_NANOSECONDS = 1_000_000_000
# Seconds, nanoseconds, and the line's number among those of the same time.
_Place = tuple[int, int, int]


class PodLog:
    """The log of one container.

    Kubernetes returns a log from a whole second on, so some lines come again; after a rotation not all of them do. No
    stored line is repeated or lost, including lines that another process has stored.

    Args:
        path: The file; its mtime is the time of its last line.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._last: _Place = (0, 0, 0)
        with contextlib.suppress(OSError):
            self._last = (*divmod(os.stat(path).st_mtime_ns, _NANOSECONDS), sys.maxsize)

    @property
    def since(self) -> str:
        """The time from which to request the rest."""
        if not self._last[0]:
            return ""
        return datetime.datetime.fromtimestamp(self._last[0], datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

    def take(self, parts: Iterator[bytes], is_whole: bool, is_over: Callable[[], bool]) -> None:
        """Appends a stream's new lines to the file.

        Args:
            parts: The log, with times.
        """
        place: _Place = (0, 0, 0)
        keeps, rest = True, b""
        for part in parts:
            *lines, rest = (rest + part).split(b"\n")
            place, keeps = self._keep([line + b"\n" for line in lines], place, keeps)
            if is_over():
                return
        # An incomplete last line is dropped: the next request returns it as a whole.
        self._keep([rest] if is_whole and rest else [], place, keeps)

    def _keep(self, lines: list[bytes], place: _Place, keeps: bool) -> tuple[_Place, bool]:
        new = []
        for line in lines:
            # A line without a time belongs to the line before.
            if match := _STAMPED.fullmatch(line):
                time = _time(match)
                place = (*time, place[2] + 1 if place[:2] == time else 1)
                line = match[4]
                if keeps := place > self._last:
                    self._last = place
            if keeps:
                new.append(line)
        text = b"".join(new)
        # Even without text, so that each container has a file.
        if text or not os.path.exists(self._path):
            with open(self._path, "ab", buffering=0) as file:
                file.write(text)
                with contextlib.suppress(PermissionError):  # another user's file
                    os.utime(file.fileno(), ns=(self._last[0] * _NANOSECONDS + self._last[1],) * 2)
        return place, keeps


def _time(match: re.Match[bytes]) -> tuple[int, int]:
    zone = "+00:00" if match[3] == b"Z" else match[3].decode()
    moment = datetime.datetime.fromisoformat(match[1].decode() + zone)
    return int(moment.timestamp()), int((match[2] or b"0").ljust(9, b"0"))
