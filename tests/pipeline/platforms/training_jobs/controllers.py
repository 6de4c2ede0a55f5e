"""Kubeflow Trainer, JobSet, Kubernetes' Jobs and a kubelet, as far as a TrainJob depends on them.

Each pod is a local process in its own network, with an address that no earlier pod had;
the names of JobSet's headless service are in its /etc/hosts. Its environment is expanded as a kubelet does.
There are no Job objects: the tests' API server does not support Indexed Jobs.

Source: https://github.com/kubernetes-sigs/jobset, https://github.com/kubeflow/trainer, of 2026;
https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy.
"""

from __future__ import annotations

import contextlib
import copy
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from tests.pipeline.platforms.training_jobs.api_server import NAMESPACE, ApiServer
from tests.pipeline.platforms.training_jobs.kubelet import PODS, Controller, Pod, end, reference, seconds_of
from tests.pipeline.platforms.training_jobs.networks import Networks

TRAIN_JOBS, RUNTIMES, JOB_SETS = (
    f"/apis/{version}/namespaces/{NAMESPACE}/{plural}"
    for version, plural in (
        ("trainer.kubeflow.org/v1alpha1", "trainjobs"),
        ("trainer.kubeflow.org/v1alpha1", "trainingruntimes"),
        ("jobset.x-k8s.io/v1alpha2", "jobsets"),
    )
)
_INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass
class _Job:
    """A Job of a JobSet: `count` pods by index, the finished ones, and the failures of each."""

    count: int
    pods: dict[int, Pod] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)
    # When the next pod of an index may start.
    waits: dict[int, float] = field(default_factory=dict)


@dataclass
class _JobSet:
    uid: str
    jobs: dict[str, _Job] = field(default_factory=dict)
    all_pods: list[Pod] = field(default_factory=list)
    ended: bool = False

    def pod(self, role: str, index: int) -> Pod:
        return self.jobs[role].pods[index]


class Controllers(Controller):
    """Runs the TrainJobs and JobSets of an API server.

    Args:
        folder: For pods' logs.
        argv: Makes a pod's command line from its command; None runs the command itself.
        networks: A network for each pod; None uses this machine's.
        backoff_seconds: Delay of a pod's first successor, doubled for each next one; really 10 s.
        queue_seconds: How long a queue, as Kueue, holds each job back.
    """

    def __init__(
        self,
        server: ApiServer,
        folder: Path,
        argv: Optional[Callable[[str, int, int, list[str]], list[str]]] = None,
        networks: Optional[Networks] = None,
        backoff_seconds: float = 0.5,
        queue_seconds: float = 0.0,
    ) -> None:
        super().__init__(server, folder, "node", TRAIN_JOBS, JOB_SETS, RUNTIMES)
        self._argv, self._networks = argv, networks
        self._backoff, self._queue = backoff_seconds, queue_seconds
        # The time each job was first seen, by uid.
        self._seen: dict[str, float] = {}
        # TrainJobs whose JobSet was recreated during their deletion.
        self._made_again: set[str] = set()
        self.addresses: list[str] = []

    def _look(self) -> None:
        self._train_jobs()
        self._job_sets()

    def _train_jobs(self) -> None:
        sets = {each["metadata"]["name"]: each for each in self._server.ask("GET", JOB_SETS)["items"]}
        for job in self._server.ask("GET", TRAIN_JOBS)["items"]:
            name, path = job["metadata"]["name"], f"{TRAIN_JOBS}/{job['metadata']['name']}"
            made = sets.get(name)
            if "deletionTimestamp" in job["metadata"]:
                # As the garbage collector does: owned objects first.
                if made is not None:
                    if "deletionTimestamp" not in made["metadata"]:
                        self._kubelet.delete(f"{JOB_SETS}/{name}", propagationPolicy="Foreground")
                elif job["metadata"]["uid"] in self._made_again or job.get("status", {}).get("conditions"):
                    self._server.collect(path)
                else:
                    # Kubeflow Trainer ignores the deletion and is faster than the garbage collector.
                    self._made_again.add(job["metadata"]["uid"])
                    self._make(job)
                continue
            self._admit(job, path)
            if made is None:
                self._make(job)
                continue
            if made["spec"].get("suspend", False) != job["spec"]["suspend"]:
                self._server.patch(f"{JOB_SETS}/{name}", {"spec": {"suspend": job["spec"]["suspend"]}})
            renamed = {"Completed": "Complete", "Failed": "Failed"}
            ends = [each for each in made.get("status", {}).get("conditions", ()) if each["type"] in renamed]
            if ends and not job.get("status", {}).get("conditions"):
                conditions = [{**each, "type": renamed[each["type"]]} for each in ends]
                self._server.patch(f"{path}/status", {"status": {"conditions": conditions}})

    def _admit(self, job: dict[str, Any], path: str) -> None:
        """Holds a job back for a while, as a queue does."""
        first = self._seen.setdefault(job["metadata"]["uid"], time.monotonic())
        held = time.monotonic() - first < self._queue
        if self._queue and job["spec"].get("suspend", False) != held:
            self._server.patch(path, {"spec": {"suspend": held}})
            job["spec"]["suspend"] = held

    def _make(self, job: dict[str, Any]) -> None:
        runtime = self._server.ask("GET", f"{RUNTIMES}/{job['spec']['runtimeRef']['name']}")
        self._server.ask("POST", JOB_SETS, _job_set_of(job, runtime))

    def _job_sets(self) -> None:
        for name, found in self._living(JOB_SETS).items():
            jobs = {each["name"]: each["template"]["spec"] for each in found["spec"]["replicatedJobs"]}
            if name not in self._known:
                check(found)
                counts = {role: _Job(spec["completions"]) for role, spec in jobs.items()}
                self._known[name] = _JobSet(found["metadata"]["uid"], counts)
            if "ownerReferences" not in found["metadata"]:
                self._admit(found, f"{JOB_SETS}/{name}")
            if found["spec"].get("suspend"):
                self._suspend(self._known[name])
            elif not self._known[name].ended:
                self._reconcile(name, found, jobs)

    def _reconcile(self, name: str, found: dict[str, Any], jobs: dict[str, Any]) -> None:
        known = self._known[name]
        for role, spec in jobs.items():
            job = known.jobs[role]
            for index in {*range(job.count)} - job.done:
                pod = job.pods.get(index)
                if pod is None:
                    if time.monotonic() >= job.waits.get(index, 0.0):
                        job.pods[index] = self._start(name, found, role, index, spec)
                        known.all_pods.append(job.pods[index])
                    continue
                if pod.process.poll() is None:
                    continue
                code = self._kubelet.report(pod)
                if code == 0:
                    job.done.add(index)
                    continue
                del job.pods[index]
                job.failures[index] = job.failures.get(index, 0) + 1
                job.waits[index] = time.monotonic() + self._backoff * 2 ** (job.failures[index] - 1)
                if reason := _fails(spec, code, job.failures[index]):
                    self._finish(name, "Failed", f"jobset failed due to one or more job failures: {role}: {reason}")
                    return
            limit = spec.get("activeDeadlineSeconds")
            if limit and time.time() - seconds_of(found["metadata"]["creationTimestamp"]) > limit:
                self._finish(name, "Failed", "jobset failed due to one or more job failures")
                return
        targets = found["spec"]["successPolicy"]["targetReplicatedJobs"]
        if all(len(known.jobs[role].done) == known.jobs[role].count for role in targets):
            self._finish(name, "Completed", "jobset completed successfully")

    def _suspend(self, known: _JobSet) -> None:
        """Ends the pods of a suspended job without counting failures."""
        for job in known.jobs.values():
            for pod in job.pods.values():
                if pod.process.poll() is None:
                    end(pod.process, signal.SIGTERM)

    def _start(self, name: str, found: dict[str, Any], role: str, index: int, spec: dict[str, Any]) -> Pod:
        host = f"{name}-{role}-0-{index}"
        pod_name, (container,) = f"{host}-{uuid.uuid4().hex[:5]}", spec["template"]["spec"]["containers"]
        labels = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": role}
        annotations = {_INDEX: str(index)}
        self._create(found, container, name=pod_name, labels=labels, annotations=annotations)
        self._kubelet.bind(pod_name)
        number = self.started.count(host)
        self.started.append(host)
        command = [sys.executable if each == "python" else each for each in container["command"]]
        argv = self._argv(role, index, number, command) if self._argv else command
        if self._networks:
            argv, address = self._networks.join(f"{host}.{name}", argv)
            self.addresses.append(address)
        own = expanded(container.get("env", ()), {"annotations": annotations})
        pod = self._run(pod_name, argv, own)
        self._kubelet.runs(pod)
        return pod

    def _finish(self, name: str, state: str, what: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        condition = {"type": state, "status": "True", "reason": state, "message": what, "lastTransitionTime": now}
        self._server.patch(f"{JOB_SETS}/{name}/status", {"status": {"conditions": [condition]}})
        known = self._known[name]
        known.ended = True
        # Running Jobs are deleted with their pods; finished ones stay with theirs.
        for job in known.jobs.values():
            if len(job.done) < job.count:
                for pod in job.pods.values():
                    end(pod.process, signal.SIGTERM)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        pod.process.wait(30)
                    end(pod.process, signal.SIGKILL)
                    pod.process.wait()
                    self._kubelet.delete(f"{PODS}/{pod.name}")

    def _collect(self, known: _JobSet) -> bool:
        known.all_pods = [pod for pod in known.all_pods if self._stays(pod)]
        return not known.all_pods


def _fails(spec: dict[str, Any], code: int, failures: int) -> str:
    """Returns the reason why a pod's exit code fails its Job; empty if it does not."""
    for rule in spec["podFailurePolicy"]["rules"]:
        rule_of_codes = rule.get("onExitCodes")
        if rule_of_codes and (code in rule_of_codes["values"]) == (rule_of_codes["operator"] == "In"):
            return f"PodFailurePolicy: {rule['action']}, exit code {code}"
    # `maxFailedIndexes` is zero: no index may fail.
    return "MaxFailedIndexesExceeded" if failures > spec["backoffLimitPerIndex"] else ""


def _job_set_of(job: dict[str, Any], runtime: dict[str, Any]) -> dict[str, Any]:
    """Makes the JobSet of a TrainJob."""
    template = copy.deepcopy(runtime["spec"]["template"])
    for each in template["spec"]["replicatedJobs"]:
        labels = each["template"].get("metadata", {}).get("labels", {})
        if labels.get("trainer.kubeflow.org/trainjob-ancestor-step") == "trainer":
            nodes = job["spec"]["trainer"]["numNodes"]
            each["template"]["spec"].update(parallelism=nodes, completions=nodes)
    owners = [reference(job, controller=True)]
    metadata = {"name": job["metadata"]["name"], "ownerReferences": owners}
    template["spec"]["suspend"] = job["spec"]["suspend"]
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, **template}


def check(job_set: dict[str, Any]) -> None:
    """Checks a JobSet by the webhooks of JobSet and Kubernetes' Jobs, beyond their schemas.

    Source: https://github.com/kubernetes-sigs/jobset/blob/main/pkg/webhooks/jobset_webhook.go,
    https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/batch/validation/validation.go.
    """
    name, spec = job_set["metadata"]["name"], job_set["spec"]
    roles = [each["name"] for each in spec["replicatedJobs"]]
    assert {*spec["successPolicy"]["targetReplicatedJobs"]} <= {*roles}
    for role, job in zip(roles, (each["template"]["spec"] for each in spec["replicatedJobs"])):
        longest = f"{name}-{role}-0-{job['completions'] - 1}-01234"
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", longest), longest
        assert job["completionMode"] == "Indexed", "backoffLimitPerIndex needs it"
        assert job["maxFailedIndexes"] <= job["completions"]
        pod = job["template"]["spec"]
        assert pod["restartPolicy"] == "Never", "podFailurePolicy needs it"
        for rule in job["podFailurePolicy"]["rules"]:
            assert len({"onExitCodes", "onPodConditions"} & rule.keys()) == 1
            if codes := rule.get("onExitCodes"):
                assert codes["containerName"] in {each["name"] for each in pod["containers"]}
                assert codes["values"] == sorted({*codes["values"]})
                assert codes["operator"] == "NotIn" or 0 not in codes["values"]
            assert all(each["type"] and each["status"] for each in rule.get("onPodConditions", ()))
        assert {each["name"] for each in pod["containers"][0].get("volumeMounts", ())} == {
            each["name"] for each in pod.get("volumes", ())
        }


def expanded(variables: Any, metadata: dict[str, Any]) -> dict[str, str]:
    """Returns a container's environment as a kubelet expands it: `$(NAME)` is an earlier variable."""
    made: dict[str, str] = {}
    for each in variables:
        if "valueFrom" in each:
            (path,) = re.findall(r"metadata\.annotations\['(.+)'\]", each["valueFrom"]["fieldRef"]["fieldPath"])
            made[each["name"]] = metadata["annotations"][path]
            continue
        made[each["name"]] = re.sub(r"\$\((\w+)\)", lambda found: made.get(found[1], found[0]), each["value"])
    return made
