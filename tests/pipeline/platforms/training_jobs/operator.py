"""The training operator, a kubelet and the garbage collector, as far as a TFJob depends on them.

Each pod is a local process. TF_CONFIG is as the operator sets it, except that the services' names are local
addresses. Pods' and TFJobs' status go through the API server, and so do the logs, which it requests from the
kubelet here.

Source: https://github.com/kubeflow/trainer/tree/v1.8.1/pkg/controller.v1.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from tests.pipeline.platforms.training_jobs.api_server import NAMESPACE, ApiServer
from tests.pipeline.platforms.training_jobs.kubelet import PODS, Controller, Pod, end, seconds_of
from tfx_estimator.components.trainer.cluster.plan import free_ports

TF_JOBS = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/tfjobs"
_CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
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

    @property
    def all_pods(self) -> list[Pod]:
        return list(self.pods.values())

    def pod(self, kind: str, index: int) -> Pod:
        return self.pods[kind, index]


class Operator(Controller):
    """Runs the TFJobs of an API server.

    Args:
        folder: For pods' logs.
        argv: What a pod of a type and an index runs in place of its command; None runs that.
    """

    def __init__(
        self, server: ApiServer, folder: Path, argv: Optional[Callable[[str, int, int], list[str]]] = None
    ) -> None:
        super().__init__(server, folder, "tensorflow", TF_JOBS)
        self._argv = argv
        self.pending = False
        # Types of pods that fit on no node.
        self.unscheduled: set[str] = set()

    def has_ended(self, kind: str, index: int) -> bool:
        with self._lock:
            return self._running().pod(kind, index).process.poll() == 0

    def _look(self) -> None:
        for each in self._server.ask("GET", _CONFIG_MAPS)["items"]:
            # As the garbage collector does after a foreground deletion: they own nothing.
            if "deletionTimestamp" in each["metadata"]:
                self._server.collect(f"{_CONFIG_MAPS}/{each['metadata']['name']}")
        for name, job in self._living(TF_JOBS).items():
            if name not in self._known:
                specs = job["spec"]["tfReplicaSpecs"]
                ports = {kind.lower(): free_ports(spec["replicas"]) for kind, spec in specs.items()}
                self._known[name] = _Job(name, job["metadata"]["uid"], ports)
                self._say(name, "Created", "it is created")
            if self._known[name].uid == job["metadata"]["uid"] and not self._known[name].ended:
                self._reconcile(name, job)

    def _collect(self, job: _Job) -> bool:
        job.pods = {key: pod for key, pod in job.pods.items() if self._stays(pod)}
        while job.unscheduled:
            kind, index = job.unscheduled.pop()
            self._kubelet.delete(f"{PODS}/{job.name}-{kind}-{index}")
        return not job.pods

    def _reconcile(self, name: str, job: dict[str, Any]) -> None:
        known, spec = self._known[name], job["spec"]
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
        ports, low = self._known[name].ports, kind.lower()
        cluster = {each: [f"localhost:{p}" for p in listed] for each, listed in ports.items() if each != "evaluator"}
        config = {"cluster": cluster, "task": {"type": low, "index": index}, "environment": "cloud"}
        template = job["spec"]["tfReplicaSpecs"][kind]["template"]
        container, pod_name = template["spec"]["containers"][0], f"{name}-{low}-{index}"
        labels = {f"{_PREFIX}job-name": name, f"{_PREFIX}replica-type": low, f"{_PREFIX}replica-index": str(index)}
        waiting = self._known[name].unscheduled
        if (low, index) not in waiting:
            self._create(job, container, name=pod_name, labels=labels)
            waiting.add((low, index))
        if low in self.unscheduled:
            return
        self._kubelet.bind(pod_name)
        waiting.remove((low, index))
        number = self.started.count(pod_name)
        self.started.append(pod_name)
        own = {each["name"]: each["value"] for each in container.get("env", ())}
        argv = self._argv(low, index, number) if self._argv else None
        argv = argv or [
            sys.executable if each == "python" else each for each in (*container["command"], *container.get("args", ()))
        ]
        if sum(map(len, ports.values())) > 1:
            own["TF_CONFIG"] = json.dumps(config)
        pod = self._run(pod_name, argv, own)
        # First, since the server may be down by now.
        self._known[name].pods[low, index] = pod
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
        self._server.patch(f"{TF_JOBS}/{name}/status", {"status": {"conditions": [condition]}})
