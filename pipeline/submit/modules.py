"""Brings the user's own modules to where the steps of a compiled pipeline look for them."""

from __future__ import annotations

import hashlib
import os

from tfx_estimator.pipeline.base.errors import DeclarationError, PipelineError
from tfx_estimator.pipeline.base.files import write_whole, writing
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.runners.compiling import Compiled


def bring(compiled: Compiled, folder: str, pipeline_root: str) -> list[str]:
    """Copies the wheels of a compiled pipeline; one that is there already is left alone.

    Args:
        folder: For the wheels, where this machine does not see the volume that they belong in.
        pipeline_root: Where the steps write.

    Raises:
        DeclarationError: They belong in a volume that is not mounted here.
        PipelineError: They cannot be written.
    """
    if not compiled.modules:
        return []
    place = compiled.modules_uri
    if not is_address(place) and not os.path.isdir(pipeline_root):
        for packed in compiled.modules:
            with writing(path := os.path.join(folder, packed.name)):
                write_whole(path, packed.data)
        raise DeclarationError(
            f"your own modules belong in {place}, and this machine has no folder {pipeline_root}",
            expected="the volume mounted here at the same path, or the modules in it already",
            todo=f"copy the wheels in {folder} to {place}, and submit again with --modules-there; "
            "or name a bucket: deploy.pipeline_root",
        )
    from tfx.dsl.io import fileio

    from tfx_estimator.components import files
    from tfx_estimator.pipeline.runners.buckets import check_buckets

    check_buckets([place])
    copied = []
    try:
        fileio.makedirs(place)
        for packed in compiled.modules:
            path = os.path.join(place, packed.name)
            if not _is_there(path, packed.sha256):
                files.write_whole(path, packed.data)
                copied.append(path)
    except Exception as error:  # file systems have errors of their own
        raise PipelineError(
            f"your own modules cannot be written to {place}: {error}",
            expected="a folder that this account may write",
            todo="see deploy.pipeline_root; or copy them by other means, and submit with --modules-there",
        ) from error
    return copied


def _is_there(path: str, sha256: str) -> bool:
    from tfx.dsl.io import fileio

    if not fileio.exists(path):
        return False
    with fileio.open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest() == sha256
