"""Checks of `deploy.image`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfx_estimator.pipeline.base.targets import VERTEX
from tfx_estimator.pipeline.config.problems import Problem

PINNED = "REGISTRY/NAME@sha256:…, 64 hexadecimal digits"
_PINNED = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
# Source: https://cloud.google.com/vertex-ai/docs/training/create-custom-container.
_PULLED = re.compile(r"([a-z0-9-]+[.])+pkg[.]dev|([a-z]+[.])?gcr[.]io|((registry-1|index)[.])?docker[.]io")


def check_image(image: str) -> Iterator[Problem]:
    """Checks `deploy.image`."""
    path = "deploy.image"
    if not _PINNED.fullmatch(image):
        what = "the image is not pinned by its digest: what a tag names changes"
        todo = "docker inspect --format '{{index .RepoDigests 0}}' IMAGE says it"
        yield Problem(path, what, PINNED, todo, value=image)


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
