"""What a step of Kubeflow Pipelines can have of a pod's template: the fields of kfp-kubernetes.

Source: https://github.com/kubeflow/pipelines/blob/master/kubernetes_platform/proto/kubernetes_executor_config.proto.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from tfx_estimator.pipeline.config.deploy import DeploySection, Node
from tfx_estimator.pipeline.config.pod_patch import MAIN, Object, patched
from tfx_estimator.pipeline.platforms.volumes import volumes_of

# Of each volume's and variable's source in a pod, the field of kfp-kubernetes, and the names of its own fields there.
_VOLUMES = {
    "persistentVolumeClaim": ("pvcMount", {"claimName": "constant"}),
    "secret": ("secretAsVolume", {"secretName": "secretName", "optional": "optional"}),
    "configMap": ("configMapAsVolume", {"name": "configMapName", "optional": "optional"}),
    "emptyDir": ("emptyDirMounts", {"medium": "medium", "sizeLimit": "sizeLimit"}),
}
_VARIABLES = {
    "secretKeyRef": ("secretAsEnv", {"name": "secretName", "key": "secretKey", "optional": "optional"}),
    "configMapKeyRef": ("configMapAsEnv", {"name": "configMapName", "key": "configMapKey", "optional": "optional"}),
    "fieldRef": ("fieldPathAsEnv", {"fieldPath": "fieldPath"}),
}
# Those of one key of a Secret or ConfigMap.
_KEYS = ("secretKey", "configMapKey")


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
    main, sources = spec["containers"][0], {each["name"]: each for each in spec.pop("volumes", ())}
    del main["name"]

    def moved(entry: Object, source: Object, table: Any, more: Object) -> Object:
        """Returns what is left of a mount or variable."""
        kind = next((each for each in table if isinstance(source.get(each), dict)), "")
        if not kind:
            return {key: value for key, value in entry.items() if key != "name"}
        field, names = table[kind]
        of = source[kind]
        made = {**{names[key]: value for key, value in of.items() if key in names}, **more}
        for key in _KEYS:
            if key in made:
                made["keyToEnv"] = [{key: made.pop(key), "envVar": made.pop("name")}]
        found.setdefault(field, []).append(made)
        # Secrets and ConfigMaps are read-only.
        known = {*names, *more, "name", "valueFrom", *(["readOnly"] if field.endswith("AsVolume") else [])}
        return {key: value for key, value in {**entry, **of}.items() if key not in known}

    def mounted(mount: Object) -> Object:
        source = sources.get(mount.get("name"), {})
        own = {"volumeName": mount["name"]} if "emptyDir" in source else {}
        return moved(mount, source, _VOLUMES, {"mountPath": mount["mountPath"], **own})

    main["volumeMounts"] = [*map(mounted, main.pop("volumeMounts", ()))]
    variables = [(each, each.get("valueFrom", {})) for each in main.pop("env", ())]
    main["env"] = [moved(each, source, _VARIABLES, {"name": each["name"]}) for each, source in variables]
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
    deep = path.count(".") >= (3 if path.endswith(("volumeMounts", "env")) else 2)
    if deep or not isinstance(value, (dict, list)):
        yield path
        return
    for key, inside in value.items() if isinstance(value, dict) else ((path, each) for each in value):
        if inside not in (None, {}, []):
            yield from _fields(inside, path if isinstance(value, list) else f"{path}.{key}".lstrip("."))
