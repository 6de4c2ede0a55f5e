"""Checks of whether Dataflow reaches what a declaration names."""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.config.dataflow import DataflowSection
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.paths import is_address, is_path
from tfx_estimator.pipeline.config.problems import Problem

_HERE = "Dataflow's workers do not see this machine's files"
_BUCKET = "a folder in a bucket: gs://BUCKET/FOLDER"


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
