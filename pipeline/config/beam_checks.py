"""Checks of the `beam` section: options that a runner needs or does not take, and addresses that it cannot reach."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tfx_estimator.pipeline.config.beam import ENGINES, OF_JOB_SERVER, PORTABLE, BeamSection
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.paths import OF_THIS_MACHINE, is_address, is_path
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.rules.rule import Case

_OPTIONS = "beam.options"
_LOCAL_HOST = re.compile(r"\b(localhost|127\.0\.0\.1)\b|\[::1\]")
# environment_type -> its environment_config.
_CONFIGS = {
    "EXTERNAL": "HOST:PORT of the worker pool",
    "DOCKER": "an image that holds this package: Beam's own has no TFX",
    "PROCESS": """JSON with the worker's command: '{"command": "/opt/apache/beam/boot"}'""",
}
_MASTERS = {
    "flink": (re.compile(r"(https?://)?[^/\s:]+:\d+"), "HOST:PORT of the job manager's REST interface"),
    "spark": (re.compile(r"spark://[^/\s]+:\d+"), "spark://HOST:PORT"),
}
_TAKEN_BY = {
    "dataflow": ("dataflow",),
    **{name: ("portable",) if name in OF_JOB_SERVER else (*ENGINES, "portable") for name in PORTABLE},
    **{name: tuple(engine for engine in ENGINES if name in ENGINES[engine]) for name in ENGINES["flink"]},
}


def check_beam(case: Case) -> Iterator[Problem]:
    """Checks the section."""
    beam = case.beam
    for name, runners in _TAKEN_BY.items():
        value = getattr(beam, name)
        if value is not None and beam.runner not in runners:
            what = f"beam.runner is {beam.runner}, which does not take it"
            todo = f"remove it, or set beam.runner: {' or '.join(runners)}"
            written = str(value) if isinstance(value, (str, int)) else "{…}"
            yield Problem(f"beam.{name}", what, "", todo, value=written, depends=("beam.runner",))
    if beam.runner in _MASTERS:
        yield from _engine(beam, case.target)
    if beam.runner == "portable" or (beam.runner in ENGINES and not beam.is_local_engine):
        yield from _portable(beam, case.target)
    if beam.runner == "dataflow":
        yield from _dataflow(case)
    if case.target:
        yield from _deployed(beam, case.deploy)


def _engine(beam: BeamSection, target: str) -> Iterator[Problem]:
    """Checks the cluster's address and the jar of an engine's own runner."""
    pattern, expected = _MASTERS[beam.runner]
    if beam.master is None and target:
        what = "a step would start the engine in its own container"
        yield Problem("beam.master", what, expected, "name the cluster", depends=("beam.runner",))
    if beam.master is not None and not pattern.fullmatch(beam.master):
        what = f"it is no address of {beam.runner.capitalize()}"
        yield Problem("beam.master", what, expected, "correct it", value=beam.master, depends=("beam.runner",))
    jar = beam.job_server_jar
    if jar is not None and not target and not is_address(jar) and not Path(jar).is_file():
        todo = "correct it, or leave it out: Beam downloads its own"
        yield Problem("beam.job_server_jar", "there is no such file", "the path or URL of a jar", todo, value=jar)


def _portable(beam: BeamSection, target: str) -> Iterator[Problem]:
    """Checks that the workers have TFX: by default, Beam runs them in its own image, which has none."""
    flags = {option.partition("=")[0] for option in beam.options}
    kind, path = beam.environment_type, "beam.environment_type"
    if kind is None and PORTABLE["environment_type"] not in flags:
        # A job server on another machine cannot reach a LOOPBACK worker.
        expected = "EXTERNAL, DOCKER or PROCESS" + ("" if target else "; or LOOPBACK, this process does the work")
        what = "Beam would run its workers in its own image, which has no TFX"
        yield Problem(path, what, expected, f"set {path}", depends=("beam.runner", _OPTIONS))
    if kind in _CONFIGS and beam.environment_config is None and PORTABLE["environment_config"] not in flags:
        yield Problem("beam.environment_config", f"{kind} needs it", _CONFIGS[kind], "add it", depends=(path,))


def _dataflow(case: Case) -> Iterator[Problem]:
    """Checks that beam.dataflow is there, and that the workers see the data."""
    data = case.data
    if case.beam.dataflow is None:
        expected = "beam.dataflow with project, region, temp_location and sdk_container_image"
        what, todo = "Dataflow needs its own section", f"add {expected}"
        yield Problem("beam.runner", what, expected, todo, value="dataflow", depends=("beam.dataflow",))
    key = data.table_keys[0] if data.is_table else "dataset" if is_path(data.dataset) else "data_dir"
    place = getattr(data, key) or ""
    # With a target, local paths are refused by the rules of deployment.
    if not place.startswith("gs://") and (not case.target or not place or case.deploy.is_mounted(place)):
        local = "Dataflow's workers do not see this machine's files"
        what = "Dataflow needs it in Google Cloud Storage" if is_address(place) else local
        yield Problem(f"data.{key}", what, "gs://BUCKET/FOLDER", "copy the data there", value=place or "null")


def _deployed(beam: BeamSection, deploy: DeploySection) -> Iterator[Problem]:
    """Finds addresses that a step of a deployed pipeline cannot reach from its container."""
    # environment_config may be local: Flink's task managers use the worker pool of their own machine.
    hosts = {f"beam.{name}": getattr(beam, name) or "" for name in (*OF_JOB_SERVER, "master")}
    for path, value in hosts.items():
        if _LOCAL_HOST.search(value):
            yield Problem(path, OF_THIS_MACHINE, "a host that the steps reach", "name the service's", value=value)
    if beam.environment_type == "LOOPBACK":
        what = "the job server would look for the step's process on its own machine"
        expected, todo = "EXTERNAL, DOCKER or PROCESS", "name where the job server's machines find workers"
        yield Problem("beam.environment_type", what, expected, todo, value="LOOPBACK")
    root = deploy.pipeline_root
    if beam.runner == "dataflow" and root is not None and deploy.is_mounted(root):
        what, todo = "Dataflow's workers have no volume of the cluster", "name a bucket, or take another beam.runner"
        yield Problem("deploy.pipeline_root", what, "gs://BUCKET/FOLDER", todo, value=root, depends=("beam.runner",))
