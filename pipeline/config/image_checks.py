"""Checks of images, as `deploy.image` and `beam.dataflow.sdk_container_image` name them.

Source: https://github.com/distribution/reference/blob/main/regexp.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.targets import VERTEX

PINNED = "REGISTRY/NAME@sha256:…, 64 hexadecimal digits"
_PART = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"({_PART}([.]{_PART})*|\[[0-9a-fA-F:]+\])(:[0-9]+)?"
_COMPONENT = r"[a-z0-9]+(([.]|_{1,2}|-+)[a-z0-9]+)*"
_TAG, _DIGEST = r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", r"@sha256:[0-9a-f]{64}"
_OF_A_REGISTRY = re.compile(rf"{_HOST}(/{_COMPONENT})+({_TAG})?({_DIGEST})?")
_REFERENCE = re.compile(rf"({_HOST}/)?{_COMPONENT}(/{_COMPONENT})*({_TAG})?({_DIGEST})?")
_PINNED = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
# Source: https://cloud.google.com/vertex-ai/docs/training/create-custom-container.
_PULLED = re.compile(r"([a-z0-9-]+[.])+pkg[.]dev|([a-z]+[.])?gcr[.]io|((registry-1|index)[.])?docker[.]io")


def is_image(value: str) -> bool:
    """Is it an image of a registry that is named, with or without a tag and a digest.

    Args:
        value: What was declared.
    """
    return bool(_OF_A_REGISTRY.fullmatch(value))


def check_image(image: str) -> Iterator[Problem]:
    """Checks `deploy.image`.

    Args:
        image: What was declared.
    """
    path = "deploy.image"
    if not _PINNED.fullmatch(image):
        what = "the image is not pinned by its digest: what a tag names changes"
        todo = "docker inspect --format '{{index .RepoDigests 0}}' IMAGE says it"
        yield Problem(path, what, PINNED, todo, value=image)
    elif not _REFERENCE.fullmatch(image):
        what = "this is no image's name: it has no scheme before it, and lower case letters after its registry"
        yield Problem(path, what, PINNED, "name it as `docker pull` takes it", value=image)


def note_image(image: str, target: str) -> Iterator[str]:
    """Says which images may not be pulled where they are wanted.

    Args:
        image: As `check_image` takes it.
        target: Where it is to be deployed.
    """
    first, _, rest = image.partition("/")
    # Docker's rule: without `.`, `:` or `localhost` the first part is no host, and the image is on Docker Hub.
    host = re.sub(r":[0-9]+$", "", first) if rest and (first == "localhost" or set(first) & {".", ":"}) else ""
    if target == VERTEX and host and not _PULLED.fullmatch(host):
        yield (
            f"deploy.image is at {host}: Vertex AI is documented to pull from Artifact Registry, *.pkg.dev, and from "
            "Docker Hub"
        )
