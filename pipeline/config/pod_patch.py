"""`deploy.pod_patch`: pod templates as Kubernetes takes them, merged into those of our pods as `kubectl patch` does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.yaml_text import inline, read_yaml

Object = dict[str, Any]
PATCH = ("deploy", "pod_patch")
_DOTTED = ".".join(PATCH)
# The name of our own container in a patch, whatever the platform calls it.
MAIN = "main"
# Lists whose items are merged, by the key that tells them apart; any other list is replaced.
# Source: `patchMergeKey` in https://github.com/kubernetes/api/blob/master/core/v1/types.go.
_MERGE_KEYS = {
    **dict.fromkeys(
        ("containers", "initContainers", "volumes", "env", "imagePullSecrets", "resourceClaims"), ("name",)
    ),
    "volumeMounts": ("mountPath",),
    "ports": ("containerPort", "protocol"),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}
_PARTS = ("metadata", "spec")
# Kubernetes' own names of parts of a pod, where the declaration has others.
_OF_KUBERNETES = re.compile(r"affinity|tolerations|[a-z]+[A-Z]\w*")


def patched(template: Object, patches: Sequence[Mapping[str, Any]], *names: str) -> Object:
    """Returns a pod's template with all patches applied that are for one of its names, in their order."""
    for patch in patches:
        if not patch.get("pods") or {*names} & {*as_list(patch["pods"])}:
            template = _merge(template, {part: patch[part] for part in _PARTS if part in patch})
    return template


def _merge(base: Any, patch: Any, name: str = "") -> Any:
    """Returns a value, which `name` is the key of, with a patch applied; null removes a key."""
    if isinstance(patch, dict):
        held = base if isinstance(base, dict) else {}
        merged = {**held, **{key: _merge(held.get(key), value, key) for key, value in patch.items()}}
        return {key: value for key, value in merged.items() if value is not None}
    if isinstance(patch, list) and (keys := _MERGE_KEYS.get(name)):
        patches = {tuple(map(each.get, keys)): each for each in patch}
        pairs = [(each, patches.pop(tuple(map(each.get, keys)), each)) for each in base or ()]
        # A volume has one source, and a variable one value.
        ours = [_merge({} if name in ("volumes", "env") else each, new) for each, new in pairs]
        return [*ours, *(_merge({}, each) for each in patches.values())]
    return patch


def as_list(value: Any) -> Any:
    """Returns the patches of the short form, which is one."""
    return value if isinstance(value, (list, tuple)) else [] if value is None else [value]


def read_files(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Puts the contents of files in place of their names; yields what cannot be read."""
    deploy = values.get(PATCH[0])
    patches = deploy.get(PATCH[1]) if isinstance(deploy, dict) else None
    for index, file in enumerate(patches := patches if isinstance(patches, list) else []):
        if isinstance(file, str):
            try:
                with open(file, encoding="utf-8") as source:
                    document = read_yaml(source.read(), file)
            except (OSError, ValueError) as error:
                what = f"it cannot be read: {getattr(error, 'strerror', error)}"
                yield Problem(_DOTTED, what, "a pod template, or a file with one", "correct the path", value=file)
                continue
            yield from document.problems
            patches[index] = document.value


def reject(patches: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Returns why patches cannot be merged, `names` being those of all pods; empty if they can."""
    for patch in patches:
        for key, value in patch.items():
            if key in _PARTS:
                if not isinstance(value, dict):
                    return f"{key}: {inline(value)} is no mapping"
                if reason := next(_without_key(value, key), ""):
                    return reason
            elif key != "pods":
                return f"`{key}`: a pod template has metadata and spec; beside them, `pods` are the pods that it is for"
            elif unknown := [each for each in as_list(value) if each not in names]:
                return f"pods: there is no {inline(unknown[0])}: they are {', '.join(names)}"
    return ""


def _without_key(value: Any, path: str) -> Iterator[str]:
    """Yields where an item of a list lacks the key that it is merged by."""
    for name, inside in value.items() if isinstance(value, dict) else ():
        (key, *_), place = _MERGE_KEYS.get(name, ("",)), f"{path}.{name}"
        if key and not isinstance(inside, list) and (inside is not None or name == "containers"):
            yield f"{place}: {inline(inside)} is no list"
        for item in inside if isinstance(inside, list) else ():
            if key and not (isinstance(item, dict) and isinstance(item.get(key), (str, int))):
                yield f"{place}: {inline(item)} has no `{key}`"
            elif name.endswith("ontainers") and item[key] != MAIN and "image" not in item:
                yield f"{place}: {inline(item)} has no image, and our own container is called {MAIN}"
            yield from _without_key(item, place)
        yield from _without_key(inside, place)


def _secrets(value: Any) -> Object:
    named = [(f"secret-{index}", each) for index, each in enumerate(value)]  # a Secret's own name may have dots
    mounts = [{"name": name, "mountPath": each["path"], "readOnly": True} for name, each in named]
    volumes = [{"name": name, "secret": {"secretName": each["name"]}} for name, each in named]
    return {"volumes": volumes, "containers": [{"name": MAIN, "volumeMounts": mounts}]}


def _security_context(value: Any) -> Object:
    if value.get("standard") == "none":
        return {"securityContext": None, "containers": [{"name": MAIN, "securityContext": None}]}
    ids = {"run_as_user": "runAsUser", "fs_group": "fsGroup"}
    return {"securityContext": {ids[key]: each for key, each in value.items() if key in ids}}


# Keys of earlier releases: what each is in a pod's spec.
FORMER = {
    "node_selector": lambda value: {"nodeSelector": value},
    "tolerations": lambda value: {
        "tolerations": [
            {"tolerationSeconds" if key == "seconds" else key: each for key, each in item.items()} for item in value
        ]
    },
    "secrets": _secrets,
    "security_context": _security_context,
    "securityContext": lambda value: {"securityContext": value},
}


def instead(path: Sequence[str], value: Any) -> str:
    """Returns what to do with an unknown key of `deploy` that is a part of a pod; empty if it is none."""
    if path[0] != PATCH[0] or not (path[-1] in FORMER or _OF_KUBERNETES.fullmatch(path[-1])):
        return ""
    if not value:
        return "remove it"
    try:
        spec = FORMER.get(path[-1], lambda each: {path[-1]: each})(value)
    except (TypeError, KeyError, AttributeError):
        spec = {}
    of = [path[-2]] if len(path) > 2 and path[-3] in ("nodes", "replicas") and path[-2] != "default" else []
    patch = inline([{"pods": of, "spec": spec}] if of else {"spec": spec})
    return f"write under `deploy:`, as Kubernetes does: {PATCH[1]}: {patch}"
