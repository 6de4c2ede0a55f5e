"""The training operator, a kubelet and the garbage collector, as far as a TFJob depends on them.

Each pod is a local process. TF_CONFIG is as the operator sets it, except that the services' names are local
addresses. Pods' and TFJobs' status go through the API server, and so do the logs, which it requests from the
kubelet here.

Source: https://github.com/kubeflow/trainer/tree/v1.8.1/pkg/controller.v1.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from tests.pipeline.platforms.training_jobs.api_server import NAMESPACE, ApiServer, RefusedError
from tests.pipeline.platforms.training_jobs.kubelet import PODS, Kubelet, Pod, end, seconds_of
from tfx_estimator.components.trainer.cluster.plan import free_ports

_JOBS = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/tfjobs"
_CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_TICK_SECONDS = 0.2
_PREFIX = "training.kubeflow.org/"


@dataclass
class _Job:
    name: str
    uid: str
    ports: dict[str, list[int]]
    pods: dict[tuple[str, int], Pod] = field(default_factory=dict)
    # Pods without a node so far.
    unscheduled: set[tuple[str, int]] = field(default_factory=set)
    ended: bool = False
    # Whether a pod was restarted and not all have run since.
    restarting: bool = False


class Operator:
    """Runs the TFJobs of an API server.

    Args:
        folder: For pods' logs.
        argv: What a pod of a type and an index runs in place of its command; None runs that.
    """

    def __init__(
        self, server: ApiServer, folder: Path, argv: Optional[Callable[[str, int, int], list[str]]] = None
    ) -> None:
        self._server, self._folder, self._argv = server, folder, argv
        folder.mkdir(parents=True, exist_ok=True)
        self._jobs: dict[str, _Job] = {}
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.pending = False
        # Types of pods that fit on no node.
        self.unscheduled: set[str] = set()
        self.started: list[str] = []
        self._kubelet = Kubelet(
            server, "tensorflow", lambda: [pod for job in list(self._jobs.values()) for pod in list(job.pods.values())]
        )
        self._thread = threading.Thread(target=self._work, name="operator", daemon=True)

    def __enter__(self) -> Operator:
        self._kubelet.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        for job in self._jobs.values():
            for pod in job.pods.values():
                end(pod.process, signal.SIGKILL)
        for listed in (_JOBS, PODS):
            for each in self._server.ask("GET", listed)["items"]:
                path = f"{listed}/{each['metadata']['name']}"
                self._kubelet.delete(path)
                if listed == _JOBS and each["metadata"].get("finalizers"):
                    self._server.collect(path)
        self._kubelet.__exit__()

    def kill(self, kind: str, index: int) -> None:
        """Kills all processes of a running pod, as a failed node would."""
        with self._lock:
            (job,) = (job for job in self._jobs.values() if not job.ended)
            end(job.pods[kind, index].process, signal.SIGKILL)

    def has_ended(self, kind: str, index: int) -> bool:
        with self._lock:
            (job,) = (job for job in self._jobs.values() if not job.ended)
            return job.pods[kind, index].process.poll() == 0

    def _work(self) -> None:
        while not self._over.wait(_TICK_SECONDS):
            # The server may be down: the operator waits for it.
            with contextlib.suppress(RefusedError, OSError), self._lock:
                self._look()

    def _look(self) -> None:
        for each in self._server.ask("GET", _CONFIG_MAPS)["items"]:
            # As the garbage collector does after a foreground deletion: they own nothing.
            if "deletionTimestamp" in each["metadata"]:
                self._server.collect(f"{_CONFIG_MAPS}/{each['metadata']['name']}")
        there = {job["metadata"]["name"]: job for job in self._server.ask("GET", _JOBS)["items"]}
        for name, known in list(self._jobs.items()):
            gone = name not in there or there[name]["metadata"]["uid"] != known.uid
            if gone and self._collect(known):
                del self._jobs[name]
        for name, job in there.items():
            if "deletionTimestamp" in job["metadata"]:
                # As the garbage collector does: pods first. The operator starts no more of them.
                if name not in self._jobs or self._collect(self._jobs[name]):
                    self._server.collect(f"{_JOBS}/{name}")
                    self._jobs.pop(name, None)
                continue
            if name not in self._jobs:
                specs = job["spec"]["tfReplicaSpecs"]
                ports = {kind.lower(): free_ports(spec["replicas"]) for kind, spec in specs.items()}
                self._jobs[name] = _Job(name, job["metadata"]["uid"], ports)
                self._say(name, "Created", "it is created")
            if self._jobs[name].uid == job["metadata"]["uid"] and not self._jobs[name].ended:
                self._reconcile(name, job)

    def _collect(self, job: _Job) -> bool:
        """Ends the pods of a deleted TFJob; returns whether they are gone."""
        for key, pod in list(job.pods.items()):
            if pod.process.poll() is None:
                end(pod.process, signal.SIGTERM)
                continue
            self._kubelet.report(pod)
            self._kubelet.delete(f"{PODS}/{pod.name}")
            del job.pods[key]
        while job.unscheduled:
            kind, index = job.unscheduled.pop()
            self._kubelet.delete(f"{PODS}/{job.name}-{kind}-{index}")
        return not job.pods

    def _reconcile(self, name: str, job: dict[str, Any]) -> None:
        known, spec = self._jobs[name], job["spec"]
        for kind, replicas in spec["tfReplicaSpecs"].items():
            for index in range(replicas["replicas"]):
                key = (kind.lower(), index)
                if key not in known.pods:
                    if not self.pending:
                        self._start(name, job, kind, index)
                    continue
                pod = known.pods[key]
                if pod.process.poll() is None:
                    continue
                code = self._kubelet.report(pod)
                if code == 0:
                    if key == ("chief", 0):
                        self._finish(known, spec, "Succeeded", "it succeeded")
                        return
                    continue
                # Regardless of `backoffLimit`: https://github.com/kubeflow/trainer/issues/2045.
                if replicas["restartPolicy"] != "ExitCode" or code < 128:
                    # As in UpdateJobStatus: a Restarting job stays so even if other pods have failed.
                    if known.restarting:
                        continue
                    what = f"TFJob {NAMESPACE}/{name} has failed because 1 {kind} replica(s) failed."
                    self._finish(known, spec, "Failed", what)
                    return
                self._say(name, "Restarting", f"{kind} replica(s) are restarting")
                known.restarting = True
                self._kubelet.delete(f"{PODS}/{pod.name}")
                del known.pods[key]
        if len(known.pods) == sum(each["replicas"] for each in spec["tfReplicaSpecs"].values()):
            known.restarting &= any(pod.process.poll() for pod in known.pods.values())
        limit = spec["runPolicy"].get("activeDeadlineSeconds")
        if limit and time.time() - seconds_of(job["metadata"]["creationTimestamp"]) > limit:
            what = f"Job {name} has failed because it was active longer than specified deadline"
            self._finish(known, spec, "Failed", what)

    def _start(self, name: str, job: dict[str, Any], kind: str, index: int) -> None:
        ports, low = self._jobs[name].ports, kind.lower()
        cluster = {each: [f"localhost:{p}" for p in listed] for each, listed in ports.items() if each != "evaluator"}
        config = {"cluster": cluster, "task": {"type": low, "index": index}, "environment": "cloud"}
        template = job["spec"]["tfReplicaSpecs"][kind]["template"]
        container, pod_name = template["spec"]["containers"][0], f"{name}-{low}-{index}"
        labels = {f"{_PREFIX}job-name": name, f"{_PREFIX}replica-type": low, f"{_PREFIX}replica-index": str(index)}
        owner = {each: job[each] for each in ("apiVersion", "kind")}
        owner |= {each: job["metadata"][each] for each in ("name", "uid")}
        owner |= {"controller": True, "blockOwnerDeletion": True}
        waiting = self._jobs[name].unscheduled
        if (low, index) not in waiting:
            metadata = {"name": pod_name, "labels": labels, "ownerReferences": [owner]}
            # No provisioner binds its volume claims here.
            containers = [{"name": container["name"], "image": container["image"]}]
            spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": containers}
            made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            self._server.ask("POST", PODS, made)
            waiting.add((low, index))
        if low in self.unscheduled:
            return
        self._kubelet.bind(pod_name)
        waiting.remove((low, index))
        number = sum(each == pod_name for each in self.started)
        self.started.append(pod_name)
        own = {each["name"]: each["value"] for each in container.get("env", ())}
        argv = self._argv(low, index, number) if self._argv else None
        argv = argv or [
            sys.executable if each == "python" else each for each in (*container["command"], *container.get("args", ()))
        ]
        stem = self._folder / f"{pod_name}.{uuid.uuid4().hex[:6]}"
        log, message = stem.with_suffix(".log"), stem.with_suffix(".message")
        environment = {**os.environ, **own, "TFX_ESTIMATOR_TERMINATION_LOG": str(message)}
        if sum(map(len, ports.values())) > 1:
            environment["TF_CONFIG"] = json.dumps(config)
        with log.open("wb") as file:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, env=environment
            )
        pod = Pod(pod_name, process, log, message)
        # First, since the server may be down by now.
        self._jobs[name].pods[low, index] = pod
        self._kubelet.runs(pod)

    def _finish(self, known: _Job, spec: dict[str, Any], state: str, what: str) -> None:
        self._say(known.name, state, what)
        known.ended = True
        if spec["runPolicy"]["cleanPodPolicy"] != "None":
            for pod in known.pods.values():
                if pod.process.poll() is None:
                    end(pod.process, signal.SIGKILL)
                    pod.process.wait()
                    self._kubelet.delete(f"{PODS}/{pod.name}")

    def _say(self, name: str, state: str, what: str) -> None:
        condition = {"type": state, "status": "True", "reason": f"TFJob{state}", "message": what}
        self._server.patch(f"{_JOBS}/{name}/status", {"status": {"conditions": [condition]}})
