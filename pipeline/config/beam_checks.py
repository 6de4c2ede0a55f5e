"""Checks of the `beam` section: what an engine needs, and what it does not take."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tfx_estimator.pipeline.config import known
from tfx_estimator.pipeline.config.beam import PORTABLE, BeamSection
from tfx_estimator.pipeline.config.credentials import flag_of, shown_options
from tfx_estimator.pipeline.config.dataflow import DataflowSection
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.paths import is_address, is_path
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.user_source.modules import find_module, is_installed, is_project
from tfx_estimator.pipeline.user_source.packages import distributions_of, is_editable

_HERE = "Dataflow's workers do not see this machine's files"
_BUCKET = "a folder in a bucket: gs://BUCKET/FOLDER"

_ENDPOINT = re.compile(r"[^\s:/]+:[0-9]{1,5}")
# Environment -> what `environment_config` is there.
_CONFIGS = {
    "EXTERNAL": "HOST:PORT of the worker pool",
    "DOCKER": "an image that holds this package: Beam's own has no TFX",
    "PROCESS": """JSON with the worker's command: '{"command": "/opt/apache/beam/boot"}'""",
}


def check_beam(declaration: Declaration, search_paths: Sequence[str], target: str = "") -> Iterator[Problem]:
    """Checks the section.

    Args:
        search_paths: Folders where the user's modules are looked for before `sys.path`.
        target: Where the pipeline is to be deployed; empty if it runs on this machine.
    """
    beam = declaration.beam
    yield from _options(beam)
    yield from _foreign(beam)
    if beam.runner == "portable":
        yield from _portable(beam, target)
        yield from _own_builder(declaration, search_paths, target)
    if beam.runner == "dataflow":
        yield from check_dataflow(declaration, target)


def _options(beam: BeamSection) -> Iterator[Problem]:
    for option, shown in zip(beam.options, shown_options(beam.options)):
        is_runner = option.partition("=")[0] == "--runner"
        if not option.startswith("--") or is_runner:
            what = "the runner is named by beam.runner" if is_runner else "this is no flag"
            yield Problem("beam.options", what, "flags of Beam, `--name=value`", "correct or remove it", value=shown)
        elif flag_of(option) == ("--direct_running_mode", "multi_processing"):
            expected = "in_memory or multi_threading"
            yield Problem("beam.options", known.WORKER_PROCESSES, expected, "remove it", value=shown)


def _foreign(beam: BeamSection) -> Iterator[Problem]:
    for name, runner in {"dataflow": "dataflow", **dict.fromkeys(PORTABLE, "portable")}.items():
        value = getattr(beam, name)
        if value is not None and beam.runner != runner:
            what = f"beam.runner is {beam.runner}, which does not take it"
            todo = f"remove it, or set beam.runner: {runner}"
            expected = f"of beam.runner: {runner} only"
            yield Problem(f"beam.{name}", what, expected, todo, value=_written(value), depends=("beam.runner",))


def note_beam(declaration: Declaration, search_paths: Sequence[str], target: str = "") -> Iterator[str]:
    """Says what workers elsewhere must have, so that they can read the data.

    Args:
        search_paths: Folders where the user's modules are looked for before `sys.path`.
        target: Where the pipeline is to be deployed; empty if it runs on this machine.
    """
    dataset = declaration.data.dataset
    if _workers_read_builder(declaration) and _is_of_package(dataset, search_paths):
        top = dataset.partition(":")[0].partition(".")[0]
        package = "/".join(distributions_of(top)) or top
        who = "Beam's workers and the image" if target else "Beam's workers"
        yield f"data.dataset: {dataset} is of an installed package: {who} must have {package}, too"


def _own_builder(declaration: Declaration, search_paths: Sequence[str], target: str) -> Iterator[Problem]:
    """Checks that a builder in a file of the user's own runs where that file is: in this process alone."""
    dataset = declaration.data.dataset
    if _workers_read_builder(declaration) and not _is_of_package(dataset, search_paths):
        what = "the job server's workers have no module of yours"
        expected = "a data set of TFDS, or a folder of one that is prepared, or a module of an installed package"
        todo = "prepare it with TFDS, and name its folder; or install its package, "
        if target:
            todo += "here, in the image and where the workers run"
        else:
            expected += ", or beam.environment_type: LOOPBACK"
            todo += "here and where the workers run; or have this process do the work: LOOPBACK"
        yield Problem("data.dataset", what, expected, todo, value=dataset, depends=("beam.environment_type",))


def _workers_read_builder(declaration: Declaration) -> bool:
    """Tells whether other processes than the run's own, or the step's, read the data by a builder of the user's own."""
    beam = declaration.beam
    name = PORTABLE["environment_type"]
    kinds = [beam.environment_type, *(value for flag, value in map(flag_of, beam.options) if flag == name)]
    is_elsewhere = beam.runner == "portable" and any(kind not in (None, "LOOPBACK") for kind in kinds)
    return is_elsewhere and is_own_builder(declaration.data.dataset)


def _is_of_package(dataset: str, search_paths: Sequence[str]) -> bool:
    """Tells a builder of an installed package, which others can install as well, from one in a file of the user's."""
    name = dataset.partition(":")[0]
    module = find_module(name, search_paths)
    if module is None or module.file is None:
        return False
    return is_installed(module) or is_project(module) or is_editable(name.partition(".")[0], module.file)


def _written(value: object) -> str:
    return str(value) if isinstance(value, (str, int)) else "{…}"


def _portable(beam: BeamSection, target: str) -> Iterator[Problem]:
    said = {option.partition("=")[0] for option in beam.options}
    if beam.job_endpoint is None and PORTABLE["job_endpoint"] not in said:
        yield Problem(
            "beam.runner",
            "the portable runner needs to know its job service",
            "beam.job_endpoint, HOST:PORT",
            "set beam.job_endpoint: localhost:8099",
            value="portable",
            depends=("beam.job_endpoint", "beam.options"),
        )
    for name in ("job_endpoint", "artifact_endpoint"):
        value = getattr(beam, name)
        if value is not None and not _ENDPOINT.fullmatch(value):
            yield Problem(
                f"beam.{name}", "this is no endpoint", "HOST:PORT", "localhost:8099, for example", value=value
            )
    kind, config = beam.environment_type, beam.environment_config
    if kind is None:
        if PORTABLE["environment_type"] not in said:
            # A job server elsewhere would look for the step's own process in vain.
            others = "EXTERNAL, DOCKER or PROCESS"
            yield Problem(
                "beam.runner",
                "Beam would run its workers in its own image, which has no TFX",
                f"beam.environment_type: {others if target else f'LOOPBACK, {others}'}",
                "set beam.environment_type" + ("" if target else "; LOOPBACK has the work done by this process"),
                value="portable",
                depends=("beam.environment_type", "beam.options"),
            )
    elif kind != "LOOPBACK" and config is None and PORTABLE["environment_config"] not in said:
        what, expected = f"{kind} needs beam.environment_config", _CONFIGS[kind]
        yield Problem(
            "beam.environment_type", what, expected, "add it", value=kind, depends=("beam.environment_config",)
        )


def check_dataflow(declaration: Declaration, target: str = "") -> Iterator[Problem]:
    """Checks a declaration whose Beam runs on Dataflow.

    Args:
        target: Where the pipeline is to be deployed; empty if it runs on this machine.
    """
    section = declaration.beam.dataflow
    if section is None:
        yield Problem(
            "beam.runner",
            "Dataflow needs to know where",
            "beam.dataflow with project, region, temp_location and sdk_container_image",
            "add `dataflow: {project: …, region: …, temp_location: gs://…, sdk_container_image: …}` under `beam:`",
            value="dataflow",
            depends=("beam.dataflow",),
        )
    else:
        yield from _values(section)
    yield from _places(declaration, target)


def _values(section: DataflowSection) -> Iterator[Problem]:
    for name in ("temp_location", "staging_location"):
        value = getattr(section, name)
        if value is not None and not value.startswith("gs://"):
            yield Problem(f"beam.dataflow.{name}", _unread(value), _BUCKET, "name one", value=value)


def _places(declaration: Declaration, target: str) -> Iterator[Problem]:
    data, deploy = declaration.data, declaration.deploy or DeploySection()

    def unseen(path: str) -> bool:
        """Of a local path the target says so itself."""
        return not path.startswith("gs://") and (not target or deploy.is_mounted(path))

    if is_path(data.dataset):
        if unseen(data.dataset):
            yield Problem("data.dataset", _unread(data.dataset), _BUCKET, "copy the data there", value=data.dataset)
    elif is_own_builder(data.dataset):
        what = "Dataflow's workers have no module of yours"
        todo = "prepare the data set with TFDS into a bucket, and name that folder"
        yield Problem("data.dataset", what, "a data set of TFDS, or its folder in a bucket", todo, value=data.dataset)
    elif data.data_dir is None or unseen(data.data_dir):
        yield Problem("data.data_dir", _unread(data.data_dir or ""), _BUCKET, "name one", value=data.data_dir or "null")


def is_own_builder(dataset: str) -> bool:
    """Tells a builder of the user's own, MODULE:CLASS, from a data set of TFDS and from a path.

    Args:
        dataset: `data.dataset`.
    """
    return not is_path(dataset) and dataset.partition(":")[2].isidentifier()


def _unread(path: str) -> str:
    return "Dataflow wants it in Google's storage" if is_address(path) else _HERE
