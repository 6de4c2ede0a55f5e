"""What a step of Kubeflow Pipelines can have of a pod's template: the fields of kfp-kubernetes.

Source: https://github.com/kubeflow/pipelines/blob/master/kubernetes_platform/proto/kubernetes_executor_config.proto.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from tfx_estimator.pipeline.config.deploy import DeploySection, Node
from tfx_estimator.pipeline.config.pod_patch import MAIN, Object, patched
from tfx_estimator.pipeline.platforms.volumes import volumes_of

# Each volume's source, and each variable's, by its field in a pod: the field of kfp-kubernetes, and its value.
_VOLUMES: dict[str, tuple[str, Callable[[str, Any], Object]]] = {
    "persistentVolumeClaim": ("pvcMount", lambda name, source: {"constant": source["claimName"]}),
    "secret": ("secretAsVolume", lambda name, source: {"secretName": source["secretName"]}),
    "configMap": ("configMapAsVolume", lambda name, source: {"configMapName": source["name"]}),
    "emptyDir": ("emptyDirMounts", lambda name, source: {"volumeName": name, **source}),
}
_VARIABLES: dict[str, tuple[str, Callable[[str, Any], Object]]] = {
    "secretKeyRef": (
        "secretAsEnv",
        lambda name, of: {"secretName": of["name"], "keyToEnv": [{"secretKey": of["key"], "envVar": name}]},
    ),
    "configMapKeyRef": (
        "configMapAsEnv",
        lambda name, of: {"configMapName": of["name"], "keyToEnv": [{"configMapKey": of["key"], "envVar": name}]},
    ),
    "fieldRef": ("fieldPathAsEnv", lambda name, of: {"name": name, "fieldPath": of["fieldPath"]}),
}


def step(deploy: DeploySection, name: str) -> Node:
    """Returns the resources of a step; the Trainer's are its pods' if it only waits for these."""
    node = deploy.nodes.of(name)
    if name != "Trainer" or not deploy.trainjob.train:
        return node
    return deploy.nodes.default.copy(update={"retries": node.retries, "accelerator": None, "accelerators": None})


def pod_of(deploy: DeploySection, name: str) -> tuple[Object, list[str]]:
    """Returns the kfp-kubernetes configuration of a step's pod, and the fields of its patches that it lacks."""
    volumes, mounts = volumes_of(deploy, step(deploy, name).accelerator)
    base = {
        "metadata": {"labels": dict(deploy.labels)},
        "spec": {"containers": [{"name": MAIN, "volumeMounts": mounts}], "volumes": volumes},
    }
    # The step Trainer only waits for pods of its own.
    names = () if name == "Trainer" and deploy.trainjob.train else (name,)
    left = copy.deepcopy(patched(base, deploy.pod_patch, *names))
    return _translated(left), sorted(_fields(left, ""))


def _translated(pod: Object) -> Object:
    """Moves what kfp-kubernetes has out of a pod's template."""
    spec = pod["spec"]
    found: Object = {}
    main, sources = spec["containers"][0], {each["name"]: each for each in spec.pop("volumes")}
    del main["name"]

    def move(entry: Object, source: Object, table: Any, more: Object) -> bool:
        kind = next((each for each in table if each in source), "")
        if kind:
            field, made = table[kind]
            found.setdefault(field, []).append({**made(entry["name"], source[kind]), **more})
        return bool(kind)

    main["volumeMounts"] = [
        each
        for each in main.get("volumeMounts", ())
        if not move(each, sources.get(each["name"], {}), _VOLUMES, {"mountPath": each["mountPath"]})
    ]
    main["env"] = [each for each in main.get("env", ()) if not move(each, each.get("valueFrom", {}), _VARIABLES, {})]
    metadata = {key: pod["metadata"].pop(key) for key in ("labels", "annotations") if pod["metadata"].get(key)}
    simple = {
        "podMetadata": metadata,
        "nodeSelector": {"labels": labels} if (labels := spec.pop("nodeSelector", {})) else {},
        "tolerations": spec.pop("tolerations", []),
        "imagePullSecret": [{"secretName": each["name"]} for each in spec.pop("imagePullSecrets", ())],
        "imagePullPolicy": main.pop("imagePullPolicy", ""),
        "activeDeadlineSeconds": spec.pop("activeDeadlineSeconds", 0),
    }
    return {**found, **{key: value for key, value in simple.items() if value}}


def _fields(value: Any, path: str) -> Iterator[str]:
    if path.count(".") >= 2 or not isinstance(value, (dict, list)):
        yield path
        return
    for key, inside in value.items() if isinstance(value, dict) else ((path, each) for each in value):
        if inside not in (None, {}, []):
            yield from _fields(inside, path if isinstance(value, list) else f"{path}.{key}".lstrip("."))
