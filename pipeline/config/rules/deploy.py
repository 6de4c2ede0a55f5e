"""Rules of deployment that all platforms share; each platform adds its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.gpu_checks import note_machines
from tfx_estimator.pipeline.config.paths import OF_THIS_MACHINE, is_address, is_path
from tfx_estimator.pipeline.config.rules.rule import Case, Rule, given
from tfx_estimator.pipeline.platforms import registry
from tfx_estimator.pipeline.platforms.rules import accelerated, rules_of
from tfx_estimator.pipeline.user_data.embedded_tables import TABLES, place_of

AN_IMAGE = "REGISTRY/NAME@sha256:…, 64 hexadecimal digits"
_PINNED = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
_RESOURCES = ("cpu", "memory_gb", "accelerator", "accelerators")


def _machines(check: Callable[[Case, str, Any, Any, str], Any]) -> Callable[[Case], Iterator[Any]]:
    """Returns a `when` that checks everything that may have accelerators; see `platforms.rules.accelerated`."""

    def find(case: Case) -> Iterator[Any]:
        for path, machine, accelerator, platform in accelerated(case.deploy, case.target):
            if found := check(case, path.rpartition(".")[2], machine, accelerator, platform):
                yield {"path": path, "platform": platform, **(found if found is not True else {})}

    return find


def _of_another_platform(case: Case, role: str, machine: Any, _: Any, platform: str) -> Any:
    pattern, example = registry.BY_NAME[platform].accelerator
    if not platform or machine.accelerator is None or re.fullmatch(pattern, machine.accelerator):
        return None
    return {"example": example}


def _root(case: Case) -> Any:
    root, platform = case.deploy.pipeline_root, case.platform
    in_volume = platform.keeps_in_volumes
    expected = [_folders(case), *["a folder in one of deploy.volumes, not read_only"] * in_volume]
    if root is None:
        what = f"the target {case.target} needs it"
    elif root.startswith(platform.stores) or (in_volume and case.deploy.is_mounted(root, writable=True)):
        return None
    else:
        what = _unreached(case, root)
    return {"why": what, "allowed": ", or ".join(expected)}


def _places(case: Case) -> Iterator[dict[str, str]]:
    data = case.data
    # A whole run writes an embedded table where it runs.
    is_embedded = data.csv in TABLES
    tables = {f"data.{key}": (getattr(data, key), "copy it there") for key in data.table_keys}
    if is_embedded:
        tables["data.csv"] = (data.csv if case.platform.runs_steps else None, f"copy {place_of(data.table_path)} there")
    places = {
        "data.dataset": (data.dataset if is_path(data.dataset) else None, "copy it there"),
        **{f"data.{key}": (getattr(data, key), "copy it there") for key in ("data_dir", "schema")},
        **tables,
        "pusher.destination": (case.pusher.destination, "null is `serving` below the pipeline root"),
    }
    allowed = _folders(case) + (", or a folder in one of deploy.volumes" if case.platform.has_volumes else "")
    for path, (value, todo) in places.items():
        mounted = value is not None and case.deploy.is_mounted(value, writable=path == "pusher.destination")
        if value is not None and not value.startswith(case.platform.stores) and not mounted:
            yield {"path": path, "why": _unreached(case, value), "allowed": allowed, "instead": todo}


def _folders(case: Case) -> str:
    """Returns the forms of a folder in the platform's object stores."""
    return " or ".join(f"{scheme}BUCKET/FOLDER" for scheme in case.platform.stores)


def _unreached(case: Case, path: str) -> str:
    """Returns why no step can read or write the path."""
    stores = " and ".join(case.platform.stores)
    return f"of object stores, the steps use {stores} alone" if is_address(path) else OF_THIS_MACHINE


DEPLOY = (
    Rule(
        "name",
        lambda case: "_" in (case.name or "") and (case.target or case.declaration.deploy is not None),
        "names of jobs and pods have no underscore",
        "write `-` for `_`",
        "a to z, then a to z, digits and `-`",
    ),
    Rule(
        "deploy.image",
        lambda case: case.deploy.image is not None and not _PINNED.fullmatch(case.deploy.image),
        "the image is not pinned by its digest: what a tag names changes",
        "docker inspect --format '{{{{index .RepoDigests 0}}}}' IMAGE shows it",
        AN_IMAGE,
    ),
    Rule(
        "{path}.accelerators",
        _machines(lambda case, role, machine, accelerator, platform: machine.accelerators and not accelerator),
        "the type of accelerator is missing",
        "add `accelerator:` under `{path}`",
        "accelerator: KIND",
    ),
    Rule(
        "{path}.accelerator",
        _machines(_of_another_platform),
        "the target {platform} has no such accelerator",
        "correct it",
        "as {example}",
    ),
    *given(
        lambda case: case.target,
        Rule(
            "deploy.image",
            lambda case: case.deploy.image is None,
            "the target {target} needs it",
            "name it: deploy.image",
            AN_IMAGE,
        ),
        Rule("deploy.pipeline_root", _root, "{why}", "name a folder that all steps can write", "{allowed}"),
        Rule("{path}", _places, "{why}", "{instead}; --set {path}=…", "{allowed}"),
        Rule(
            "trainer.warm_start",
            lambda case: case.trainer.warm_start is not None,
            "warm starts read weights from this machine only",
            "remove it",
            "no warm start",
        ),
    ),
)


def find_target(name: str) -> str:
    """Returns the target with a name, which may be an earlier release's; raises DeclarationError if there is none."""
    if (target := registry.resolve(name)) not in registry.BY_NAME:
        raise DeclarationError(
            f"there is no target {name!r}", expected=f"one of {', '.join(registry.ALL_TARGETS)}", todo="choose one"
        )
    return target


def find_unused_resources(case: Case, declared: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields (path, warning) for declared resources that no step uses."""
    if case.declaration.deploy is None or not case.target:
        return
    reasons = dict(rules_of(case.target).idle_steps(case.deploy, case.target))
    if case.tune is None:
        reasons.setdefault("Tuner", "there is no section `tune`")
    places = {tuple(f"deploy.nodes.{step}.{key}" for key in _RESOURCES): why for step, why in reasons.items()}
    trains_in_pods = case.platform.trains_in_pods and case.deploy.trainjob.train
    if not trains_in_pods:
        places["deploy.training_root",] = "only a Trainer step of the target kubeflow that trains in pods uses it"
    for prefixes, why in places.items():
        if paths := [path for path in declared if path.startswith(prefixes)]:
            yield paths[0], f"{', '.join(paths)}: no effect: {why}"


def note_deployment(case: Case) -> Iterator[str]:
    """Yields what the user should know before deploying a valid declaration."""
    if not case.target:
        return
    yield from rules_of(case.target).note(case)
    if case.declaration.tracking.mlflow and case.platform.runs_steps:
        yield f"tracking.mlflow: no effect: the steps of {case.platform.title} write nothing there"
    elif case.declaration.tracking.mlflow:
        yield "tracking.mlflow: the chief's pod writes there: its image needs MLflow, and access to the address"
    yield from note_machines(case)
