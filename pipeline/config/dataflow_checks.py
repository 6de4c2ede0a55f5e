"""Checks of `beam.dataflow`: what Dataflow's service would refuse, minutes later and one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfx_estimator.pipeline.config.dataflow import DataflowSection
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.image_checks import is_image
from tfx_estimator.pipeline.config.label_checks import OF_GOOGLE, fits_google
from tfx_estimator.pipeline.config.paths import is_address, is_path
from tfx_estimator.pipeline.config.problems import Problem

_HERE = "Dataflow's workers do not see this machine's files"
_BUCKET = "a folder in a bucket: gs://BUCKET/FOLDER"
_GS = re.compile(r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/[^\r\n]*)?")
# Field -> form, and in words.
_FORMS = {
    # A domain may be before it: example.com:project.
    "project": (r"(?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]", "a project's id (not its number): my-project-123"),
    "region": (r"[a-z]+-[a-z]+[0-9]+", "a region (no zone): europe-west4"),
    "service_account_email": (r"[^@\s]+@[^@\s]+\.[a-z]+", "NAME@PROJECT.iam.gserviceaccount.com"),
    "subnetwork": (r"(https://\S+/)?regions/[a-z0-9-]+/subnetworks/[a-z0-9-]+", "regions/REGION/subnetworks/NAME"),
    "network": (
        r"((https://[^\s/]+/\S+/)?(projects/[^\s/]+/)?global/networks/)?[a-z]([a-z0-9-]{0,61}[a-z0-9])?",
        "its name: default; or projects/HOST-PROJECT/global/networks/NAME",
    ),
    "machine_type": (r"[a-z][a-z0-9]*(-[a-z0-9]+)+", "as n1-standard-4"),
    "dataflow_kms_key": (
        r"projects/[^\s/]+/locations/[a-z0-9-]+/keyRings/[\w-]{1,63}/cryptoKeys/[\w-]{1,63}",
        "projects/PROJECT/locations/REGION/keyRings/RING/cryptoKeys/KEY",
    ),
}


def check_dataflow(declaration: Declaration, target: str = "") -> Iterator[Problem]:
    """Checks a declaration whose Beam runs on Dataflow.

    Args:
        declaration: Typed values.
        target: Where the pipeline is to be deployed; empty if it runs on this machine.

    Yields:
        The problems.
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
    for name, (form, words) in _FORMS.items():
        value = getattr(section, name)
        if value is not None and not re.fullmatch(form, value):
            yield Problem(f"beam.dataflow.{name}", "this cannot be one", words, "correct it", value=value)
    if not is_image(image := section.sdk_container_image):
        path, expected = "beam.dataflow.sdk_container_image", "REGISTRY/IMAGE:TAG"
        yield Problem(path, "this cannot be one", expected, "correct it", value=image)
    for key, label in section.labels.items():
        if not fits_google(key, label):
            what, value = "this is no label of Google Cloud", f"{key}: {label}"
            yield Problem("beam.dataflow.labels", what, OF_GOOGLE, "rename it", value=value)
    for name in ("temp_location", "staging_location"):
        value = getattr(section, name)
        if value is not None and not _GS.fullmatch(value):
            yield Problem(f"beam.dataflow.{name}", _unread(value), _BUCKET, "name one", value=value)
    first, most = section.num_workers, section.max_num_workers
    if first is not None and most is not None and first > most:
        yield Problem(
            "beam.dataflow.num_workers",
            f"beam.dataflow.max_num_workers is {most}",
            "not more at the start than at most",
            "lower it, or raise the other",
            value=str(first),
            depends=("beam.dataflow.max_num_workers",),
        )
    if section.network is not None and section.subnetwork is None and section.use_public_ips is False:
        what, todo = "a network whose workers have no public addresses", "add the subnetwork with private access"
        yield Problem("beam.dataflow.network", what, "beam.dataflow.subnetwork", todo, value=section.network)


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
