"""Kubeflow Trainer, JobSet, Kubernetes' Jobs, and a kubelet, as far as a TrainJob sees of them.

Each pod is a process of this machine, in a network of its own with an address of its own, which no pod before it had;
the names of JobSet's headless service are in its /etc/hosts. Its environment is expanded as a kubelet does.
There is no object of a Job: the API server of the tests knows no Indexed ones.

Source: https://github.com/kubernetes-sigs/jobset, https://github.com/kubeflow/trainer, of 2026;
https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import re
import shutil
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

import pytest

from tests.pipeline.platforms.training_jobs.api_server import NAMESPACE, ApiServer, RefusedError
from tests.pipeline.platforms.training_jobs.operator import Pod, end, kubelet

TRAIN_JOBS, RUNTIMES, JOB_SETS = (
    f"/apis/{version}/namespaces/{NAMESPACE}/{plural}"
    for version, plural in (
        ("trainer.kubeflow.org/v1alpha1", "trainjobs"),
        ("trainer.kubeflow.org/v1alpha1", "trainingruntimes"),
        ("jobset.x-k8s.io/v1alpha2", "jobsets"),
    )
)
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_NODE = "this-machine"
_TICK_SECONDS = 0.2
_INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass
class _Job:
    """A Job of a JobSet: `count` pods by their indices, those that are done, how often each has failed."""

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


class Controllers:
    """Runs the TrainJobs and JobSets of an API server.

    Args:
        folder: For pods' logs.
        argv: What a pod runs, made of its command; None runs that.
        networks: Whether each pod has a network of its own; else all are on this machine's.
        backoff_seconds: What the first successor of a pod waits, the next ones twice as long each; really 10 s.
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
        self._server, self._folder, self._argv, self._networks = server, folder, argv, networks
        self._backoff, self._queue = backoff_seconds, queue_seconds
        # When each job was seen first, by its uid.
        self._seen: dict[str, float] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._sets: dict[str, _JobSet] = {}
        self._over, self._lock = threading.Event(), threading.Lock()
        # TrainJobs of which another JobSet was made while they went.
        self._made_again: set[str] = set()
        # Names of pods without what is drawn, in the order in which they began.
        self.started: list[str] = []
        self.addresses: list[str] = []
        self._kubelet = kubelet(server.folder / "certs", self._log_of)
        self._thread = threading.Thread(target=self._work, name="controllers", daemon=True)

    def __enter__(self) -> Controllers:
        threading.Thread(target=self._kubelet.serve_forever, name="kubelet", daemon=True).start()
        with contextlib.suppress(RefusedError):  # of a test before
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": _NODE}}
            self._server.ask("POST", "/api/v1/nodes", node)
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._kubelet.server_address[1]}},
        }
        self._server.patch(f"/api/v1/nodes/{_NODE}/status", {"status": status})
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        for known in self._sets.values():
            for pod in known.all_pods:
                end(pod.process, signal.SIGKILL)
                pod.process.wait()
        for listed in (TRAIN_JOBS, JOB_SETS, RUNTIMES, _PODS):
            for each in self._server.ask("GET", listed)["items"]:
                path = f"{listed}/{each['metadata']['name']}"
                self._delete(path)
                if each["metadata"].get("finalizers"):
                    self._server.collect(path)
        self._kubelet.shutdown()
        self._kubelet.server_close()

    def kill(self, role: str, index: int) -> None:
        """Kills all of a running pod, as a node that fails would."""
        with self._lock:
            (known,) = (each for each in self._sets.values() if not each.ended)
            end(known.jobs[role].pods[index].process, signal.SIGKILL)

    def _work(self) -> None:
        while not self._over.wait(_TICK_SECONDS):
            with contextlib.suppress(RefusedError, OSError), self._lock:
                self._train_jobs()
                self._job_sets()

    def _train_jobs(self) -> None:
        sets = {each["metadata"]["name"]: each for each in self._server.ask("GET", JOB_SETS)["items"]}
        for job in self._server.ask("GET", TRAIN_JOBS)["items"]:
            name, path = job["metadata"]["name"], f"{TRAIN_JOBS}/{job['metadata']['name']}"
            made = sets.get(name)
            if "deletionTimestamp" in job["metadata"]:
                # As the garbage collector does: what it owns first.
                if made is not None:
                    if "deletionTimestamp" not in made["metadata"]:
                        self._delete(f"{JOB_SETS}/{name}", foreground=True)
                elif job["metadata"]["uid"] in self._made_again or job.get("status", {}).get("conditions"):
                    self._server.collect(path)
                else:
                    # Kubeflow Trainer does not see that it goes, and is faster than the garbage collector.
                    self._made_again.add(job["metadata"]["uid"])
                    self._make(job)
                continue
            self._admit(job, path)
            if made is None:
                self._make(job)
                continue
            if made["spec"].get("suspend", False) != job["spec"]["suspend"]:
                self._server.patch(f"{JOB_SETS}/{name}", {"spec": {"suspend": job["spec"]["suspend"]}})
            told = {"Completed": "Complete", "Failed": "Failed"}
            ends = [each for each in made.get("status", {}).get("conditions", ()) if each["type"] in told]
            if ends and not job.get("status", {}).get("conditions"):
                conditions = [{**each, "type": told[each["type"]]} for each in ends]
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
        there = {each["metadata"]["name"]: each for each in self._server.ask("GET", JOB_SETS)["items"]}
        for name, known in list(self._sets.items()):
            gone = name not in there or there[name]["metadata"]["uid"] != known.uid
            if gone and self._collect(known):
                del self._sets[name]
        for name, found in there.items():
            if "deletionTimestamp" in found["metadata"]:
                if name not in self._sets or self._collect(self._sets[name]):
                    self._server.collect(f"{JOB_SETS}/{name}")
                    self._sets.pop(name, None)
                continue
            jobs = {each["name"]: each["template"]["spec"] for each in found["spec"]["replicatedJobs"]}
            if name not in self._sets:
                check(found)
                counts = {role: _Job(spec["completions"]) for role, spec in jobs.items()}
                self._sets[name] = _JobSet(found["metadata"]["uid"], counts)
            if "ownerReferences" not in found["metadata"]:
                self._admit(found, f"{JOB_SETS}/{name}")
            if found["spec"].get("suspend"):
                self._suspend(self._sets[name])
            elif not self._sets[name].ended:
                self._reconcile(name, found, jobs)

    def _reconcile(self, name: str, found: dict[str, Any], jobs: dict[str, Any]) -> None:
        known = self._sets[name]
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
                code = self._report(pod)
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
            if limit and time.time() - _seconds(found["metadata"]["creationTimestamp"]) > limit:
                self._finish(name, "Failed", "jobset failed due to one or more job failures")
                return
        targets = found["spec"]["successPolicy"]["targetReplicatedJobs"]
        if all(len(known.jobs[role].done) == known.jobs[role].count for role in targets):
            self._finish(name, "Completed", "jobset completed successfully")

    def _suspend(self, known: _JobSet) -> None:
        """Ends the pods of one that is held back; that is no failure of theirs."""
        for job in known.jobs.values():
            for pod in job.pods.values():
                if pod.process.poll() is None:
                    end(pod.process, signal.SIGTERM)

    def _start(self, name: str, found: dict[str, Any], role: str, index: int, spec: dict[str, Any]) -> Pod:
        host = f"{name}-{role}-0-{index}"
        pod_name, (container,) = f"{host}-{uuid.uuid4().hex[:5]}", spec["template"]["spec"]["containers"]
        labels = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": role}
        owner = {each: found[each] for each in ("apiVersion", "kind")}
        owner |= {each: found["metadata"][each] for each in ("name", "uid")}
        annotations = {_INDEX: str(index)}
        metadata = {"name": pod_name, "labels": labels, "annotations": annotations, "ownerReferences": [owner]}
        containers = [{"name": container["name"], "image": container["image"]}]
        made = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": containers}
        self._server.ask("POST", _PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made})
        target = {"apiVersion": "v1", "kind": "Node", "name": _NODE}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod_name}, "target": target}
        self._server.ask("POST", f"{_PODS}/{pod_name}/binding", binding)
        number = self.started.count(host)
        self.started.append(host)
        command = [sys.executable if each == "python" else each for each in container["command"]]
        argv = self._argv(role, index, number, command) if self._argv else command
        if self._networks:
            argv, address = self._networks.join(f"{host}.{name}", argv)
            self.addresses.append(address)
        stem = self._folder / pod_name
        log, message = stem.with_suffix(".log"), stem.with_suffix(".message")
        own = expanded(container.get("env", ()), {"annotations": annotations})
        environment = {**os.environ, **own, "TFX_ESTIMATOR_TERMINATION_LOG": str(message)}
        with log.open("wb") as file:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, env=environment
            )
        pod = Pod(pod_name, process, log, message)
        self._set_pod(pod, "Running", {"running": {}})
        return pod

    def _report(self, pod: Pod) -> int:
        """Says how a pod's process ended, once; returns its exit code, as a shell has it."""
        code = pod.process.returncode
        code = code if code >= 0 else 128 - code
        if not pod.reported:
            said = pod.message.read_text() if pod.message.exists() else pod.log.read_text()[-2048:] if code else ""
            ended = {"exitCode": code, "reason": "Error" if code else "Completed", "message": said}
            self._set_pod(pod, "Failed" if code else "Succeeded", {"terminated": ended})
            pod.reported = True
        return code

    def _set_pod(self, pod: Pod, phase: str, state: dict[str, Any]) -> None:
        container = {"name": "node", "image": "none", "imageID": "", "restartCount": 0, "state": state}
        status = {"phase": phase, "containerStatuses": [{**container, "ready": phase == "Running"}]}
        with contextlib.suppress(RefusedError):  # it may have been deleted
            self._server.patch(f"{_PODS}/{pod.name}/status", {"status": status})

    def _finish(self, name: str, state: str, what: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        condition = {"type": state, "status": "True", "reason": state, "message": what, "lastTransitionTime": now}
        self._server.patch(f"{JOB_SETS}/{name}/status", {"status": {"conditions": [condition]}})
        known = self._sets[name]
        known.ended = True
        # Jobs that still run are deleted, with their pods; those that have ended stay, with theirs.
        for job in known.jobs.values():
            if len(job.done) < job.count:
                for pod in job.pods.values():
                    end(pod.process, signal.SIGTERM)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        pod.process.wait(30)
                    end(pod.process, signal.SIGKILL)
                    pod.process.wait()
                    self._delete(f"{_PODS}/{pod.name}")

    def _collect(self, known: _JobSet) -> bool:
        """Ends the pods of a JobSet that was deleted; returns whether they have gone."""
        for pod in list(known.all_pods):
            if pod.process.poll() is None:
                end(pod.process, signal.SIGTERM)
                continue
            self._report(pod)
            self._delete(f"{_PODS}/{pod.name}")
            known.all_pods.remove(pod)
        return not known.all_pods

    def _delete(self, path: str, foreground: bool = False) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        if foreground:
            options["propagationPolicy"] = "Foreground"
        with contextlib.suppress(RefusedError):
            self._server.ask("DELETE", path, options)

    def _log_of(self, pod_name: str) -> Optional[Pod]:
        pods = (pod for known in list(self._sets.values()) for pod in list(known.all_pods))
        return next((pod for pod in pods if pod.name == pod_name), None)


def _fails(spec: dict[str, Any], code: int, failures: int) -> str:
    """Returns why a Job fails by a pod that ended with a code; empty if it does not."""
    for rule in spec["podFailurePolicy"]["rules"]:
        told = rule.get("onExitCodes")
        if told and (code in told["values"]) == (told["operator"] == "In"):
            return f"PodFailurePolicy: {rule['action']}, exit code {code}"
    # As many indices may fail as `maxFailedIndexes` says: none.
    return "MaxFailedIndexesExceeded" if failures > spec["backoffLimitPerIndex"] else ""


def _job_set_of(job: dict[str, Any], runtime: dict[str, Any]) -> dict[str, Any]:
    """Makes the JobSet of a TrainJob."""
    template = copy.deepcopy(runtime["spec"]["template"])
    for each in template["spec"]["replicatedJobs"]:
        labels = each["template"].get("metadata", {}).get("labels", {})
        if labels.get("trainer.kubeflow.org/trainjob-ancestor-step") == "trainer":
            nodes = job["spec"]["trainer"]["numNodes"]
            each["template"]["spec"].update(parallelism=nodes, completions=nodes)
    owner = {each: job[each] for each in ("apiVersion", "kind")}
    owner |= {each: job["metadata"][each] for each in ("name", "uid")}
    metadata = {"name": job["metadata"]["name"], "ownerReferences": [{**owner, "controller": True}]}
    template["spec"]["suspend"] = job["spec"]["suspend"]
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, **template}


def check(job_set: dict[str, Any]) -> None:
    """Holds a JobSet against what the webhooks of JobSet and of Kubernetes' Jobs say beside their schemas.

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
    """Returns a container's environment, as a kubelet makes it: `$(NAME)` is a variable that was there before."""
    made: dict[str, str] = {}
    for each in variables:
        if "valueFrom" in each:
            (path,) = re.findall(r"metadata\.annotations\['(.+)'\]", each["valueFrom"]["fieldRef"]["fieldPath"])
            made[each["name"]] = metadata["annotations"][path]
            continue
        made[each["name"]] = re.sub(r"\$\((\w+)\)", lambda found: made.get(found[1], found[0]), each["value"])
    return made


def _seconds(stamp: str) -> float:
    import datetime

    return datetime.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S%z").timestamp()


class Networks:
    """Networks that pods have for themselves, on one switch, and the names of their hosts.

    Args:
        folder: For the file of names.
    """

    def __init__(self, folder: Path) -> None:
        missing = [each for each in ("ip", "unshare", "nsenter") if not shutil.which(each)]
        if missing or os.geteuid():
            pytest.skip(f"networks of pods take root, and {', '.join(missing) or 'the command ip'}")
        self._numbers = itertools.count(1)
        self._hosts = folder / "hosts"
        self._names: dict[str, str] = {}
        self._first = Path("/etc/hosts").read_text()
        self._hosts.write_text(self._first)
        # Each holds a network while pods come and go.
        self._holders: list[subprocess.Popen] = []
        self._switch = self._hold("ip link set lo up; ip link add switch type bridge; ip link set switch up")

    def __enter__(self) -> Networks:
        return self

    def __exit__(self, *error: object) -> None:
        for each in self._holders:
            each.kill()
            each.wait()

    def join(self, host: str, argv: list[str]) -> tuple[list[str], str]:
        """Makes a network for a new pod of a host; returns the command in it, and its address."""
        number = next(self._numbers)
        address = f"10.87.{number // 250}.{number % 250 + 1}"
        mounted = f"ip link set lo up; mount --bind {self._hosts} /etc/hosts"
        holder = self._hold(mounted)
        inside = f"nsenter --target {holder.pid} --net ip"
        self._run(
            f"ip link add port{number} type veth peer name eth0 netns {holder.pid}"
            f" && ip link set port{number} master switch up",
            self._switch,
        )
        self._run(f"{inside} addr add {address}/16 dev eth0 && {inside} link set eth0 up")
        self._names[host] = address
        lines = "".join(f"{each} {name}\n" for name, each in self._names.items())
        # In place: a pod has this file, and not the folder's next one.
        self._hosts.write_text(f"{self._first}\n{lines}")
        return ["nsenter", "--target", str(holder.pid), "--net", "--mount", *argv], address

    def _hold(self, prepare: str) -> subprocess.Popen:
        command = ["unshare", "--net", "--mount", "sh", "-c", f"{prepare}; echo ready; exec sleep infinity"]
        holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._holders.append(holder)
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != "ready\n":
            pytest.skip(f"no network of its own can be made here: {holder.stderr.read().strip()}")
        return holder

    def _run(self, command: str, where: Optional[subprocess.Popen] = None) -> None:
        entered = ["nsenter", "--target", str(where.pid), "--net"] if where else []
        subprocess.run([*entered, "sh", "-c", command], check=True, capture_output=True)
