"""Compares the artifacts of a work folder's runs with their checksums."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator

from tfx.types import artifact_utils

from tfx_estimator.components.inventory import FILES, damage, put_aside
from tfx_estimator.pipeline.doctor.machine import FAILED, Finding, ok
from tfx_estimator.pipeline.folders import METADATA, open_store, uris_here


def check_runs(workdir: str) -> Iterator[Finding]:
    """Yields a finding for each pipeline, or for each of its damaged artifacts, which its next run makes again."""
    databases = sorted(glob.glob(os.path.join(glob.escape(workdir), "*", METADATA)))
    if not databases:
        yield Finding(workdir, FAILED, "no pipeline has run here", "name another --workdir")
    for database in databases:
        home = os.path.dirname(os.path.abspath(database))
        store, moved, damaged, files = open_store(database), uris_here(database, home), False, 0
        kinds = {kind.id: kind for kind in store.get_artifact_types()}
        for each in store.get_artifacts():
            each.uri = moved.get(each.uri, each.uri)
            artifact = artifact_utils.deserialize_artifact(kinds[each.type_id], each)
            files += len(json.loads(artifact.get_string_custom_property(FILES) or "{}"))
            path, what = damage(artifact, whole=True)
            # Whatever is gone may have been removed to free space, and each run sees that by itself.
            if os.path.exists(path):
                damaged = True
                if path.startswith(os.path.join(each.uri, "")):
                    put_aside(path)
                yield Finding(os.path.basename(home), FAILED, f"{path}: {what}", "run it again: that makes it anew")
        if not damaged:
            yield ok(os.path.basename(home), f"{files:,} files are as they were published")
