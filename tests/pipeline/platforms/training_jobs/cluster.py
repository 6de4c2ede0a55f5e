"""A fake cluster with at most one TFJob that answers like observed clusters; and its pods' files."""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import yaml

from tfx_estimator.pipeline.platforms.training_jobs import api
from tfx_estimator.pipeline.platforms.training_jobs.kinds import TF_JOB
from tfx_estimator.pipeline.platforms.training_jobs.manifest import pods_of

# The uid of the first TFJob.
UID = "uid-1"


def pod(phase: str, uid: str = "1", status: Any = None, task: str = "worker-1", **container: Any) -> dict[str, Any]:
    kind, _, index = task.partition("-")
    labels = {"training.kubeflow.org/replica-type": kind, "training.kubeflow.org/replica-index": index}
    return {
        "metadata": {"name": f"digits-{task}", "uid": uid, "labels": labels},
        "status": {"phase": phase, **(status or {}), "containerStatuses": [{"name": "tensorflow", **container}]},
    }


def ended(code: int, **rest: str) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": "Error", **rest}}


def owned(found: dict[str, Any], uid: str = UID) -> dict[str, Any]:
    found["metadata"]["ownerReferences"] = [{"kind": "TFJob", "uid": uid}]
    return found


def write_kubeconfig(path: Path, current: str, token: str = "t", **hosts: str) -> None:
    """Writes a kubeconfig with a cluster and a context for each host, and the name of the current one."""
    clusters = [{"name": name, "cluster": {"server": host}} for name, host in hosts.items()]
    contexts = [{"name": name, "context": {"cluster": name, "user": "me", "namespace": f"of-{name}"}} for name in hosts]
    users = [{"name": "me", "user": {"token": token}}]
    config = {"clusters": clusters, "contexts": contexts, "users": users, "current-context": current}
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **config}))


def in_pods(config_map: dict[str, Any], job: dict[str, Any], mounted: Path) -> list[str]:
    """Mounts the ConfigMap of a compiled training job in a folder; returns the pods' command, as this machine runs it.

    Args:
        job: The object with the pods' specification: a TFJob, a JobSet, a TrainingRuntime.
    """
    _, spec = next(iter(pods_of([job]).values()))
    (items,) = (each["configMap"]["items"] for each in spec["volumes"] if "configMap" in each)
    for item in items:
        (place := mounted / item["path"]).parent.mkdir(parents=True, exist_ok=True)
        text, data = config_map["data"].get(item["key"]), config_map.get("binaryData", {}).get(item["key"])
        place.write_bytes(base64.b64decode(data) if text is None else text.encode())
    here = {"python": sys.executable, "tfx-estimator": str(Path(sys.executable).with_name("tfx-estimator"))}
    argv = [here.get(each, each) for each in spec["containers"][0]["command"]]
    return [each.replace("/etc/tfx-estimator", str(mounted)) for each in argv]


class Cluster:
    """A fake cluster of a kubeconfig's context."""

    namespace, host = "vision", "https://cluster.example"
    kubectl, kind = api.Kube.kubectl, TF_JOB

    def __init__(self, context: str) -> None:
        self.context: Optional[str] = context
        self.there: Any = None
        self.of_pods: Any = []
        self.deleted: list[str] = []
        self.made = 0
        # Whether deleted objects vanish.
        self.goes = True
        self.owners: list[tuple[str, str]] = []
        # What keeps pods from being created.
        self.refused = ""
        # Events of pods for a watch.
        self.events: list[tuple[str, Any]] = []

    def read(self, name: str) -> Any:
        return self.there

    def add(self, manifest: Any, job: Any = None) -> None:
        if job is not None:
            self.owners.append((manifest["metadata"]["name"].partition("-")[0], job["metadata"]["uid"]))

    def create(self, manifest: Any, needed: Any = ()) -> Any:
        for each in needed:
            self.add(each)
        self.made += 1
        self.there = {**manifest, "metadata": {**manifest["metadata"], "uid": f"uid-{self.made}"}}
        for each in needed:
            self.add(each, self.there)
        return self.there

    def delete(self, name: str, uid: str) -> None:
        assert uid == self.there["metadata"]["uid"]
        self.deleted.append(uid)
        if self.goes:
            self.there = None

    def jobs(self, *_: Any, **__: Any) -> Any:
        return {"items": [self.there] if self.there else [], "metadata": {"resourceVersion": "1"}}

    def pods(self, *_: Any, **__: Any) -> Any:
        if isinstance(self.of_pods, Exception):
            raise self.of_pods
        return {"items": self.of_pods, "metadata": {"resourceVersion": "1"}}

    def watch(self, ask: Any, version: str) -> Iterator[Any]:
        time.sleep(0.05)
        while self.events and ask.func == self.pods:
            yield self.events.pop(0)

    def refusal(self, name: str, since: str) -> str:
        return self.refused

    def log(self, name: str, since: str) -> Iterator[bytes]:
        raise api.MissingError(name)

    def end(self, kind: str, message: str = "") -> None:
        condition = {"type": kind, "status": "True", "reason": f"TFJob{kind}", "message": message}
        self.there["status"] = {"conditions": [condition]}

    def fail(self, code: int, task: str = "chief-0", uid: str = "1") -> None:
        failed = pod("Failed", uid, task=task, state=ended(code, message="the end of its log"))
        self.of_pods.append(owned(failed, self.there["metadata"]["uid"]))

    def restart(self, code: int, task: str, uid: str) -> None:
        """Ends a pod and deletes it for a restart, between two polls."""
        self.fail(code, task, uid)
        gone = self.of_pods.pop()
        gone["metadata"]["resourceVersion"] = "2"
        self.events += [("MODIFIED", gone), ("DELETED", gone)]
