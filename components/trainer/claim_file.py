"""Where a claim lies: in a file of a mounted folder, or, in Cloud Storage, in the metadata of an object."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any, Optional

from tfx_estimator.components.files import RETRY_SECONDS, read_json
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.files import write_whole
from tfx_estimator.pipeline.config.paths import reject_store

# How long the store may take for an answer, and how long it is asked again; for a sign of life, and with it an answer,
# less than the time after which a claim counts as left behind.
_ANSWER_SECONDS, LONG, BRIEF = 10.0, 120.0, 10.0


class ClaimFile:
    """A claim in a mounted folder, which several that come at once may all write: the last of them has it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, seconds: float = LONG) -> Optional[dict[str, Any]]:
        """Returns what it says; None if there is none."""
        with _used(self._path):
            return read_json(self._path, RETRY_SECONDS)

    def write(self, claim: dict[str, Any], seen: Optional[dict[str, Any]], seconds: float = LONG) -> None:
        """Replaces what was seen; where nothing was, leaves what is there now, if the file system has links."""
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            write_whole(self._path, json.dumps(claim), new=seen is None)

    def remove(self, seen: dict[str, Any]) -> None:
        """Removes what was seen."""
        os.remove(self._path)


class StoredClaim:
    """A claim in Cloud Storage, which changes an object only for who names the generation that it has."""

    def __init__(self, path: str) -> None:
        self._path = path
        bucket, _, self._name = path.removeprefix("gs://").partition("/")
        if reason := reject_store(path):
            raise PipelineError(f"{path}: {reason}", expected="gs://BUCKET/FOLDER, or a folder", todo="name one")
        with _used(path):
            from google.cloud import storage
            from google.cloud.storage.retry import DEFAULT_RETRY

            self._retry = DEFAULT_RETRY.with_timeout
            self._bucket = storage.Client(project=None).bucket(bucket)

    def read(self, seconds: float = LONG) -> Optional[dict[str, Any]]:
        """Returns what it says, and its generation; None if there is none."""
        with _used(self._path):
            blob = self._bucket.get_blob(self._name, timeout=_ANSWER_SECONDS, retry=self._retry(seconds))
            return blob and {**json.loads(blob.metadata["claim"]), "generation": blob.generation}

    def write(self, claim: dict[str, Any], seen: Optional[dict[str, Any]], seconds: float = LONG) -> None:
        """Replaces what was seen, or makes it where that is None; leaves what is there if it is anything else."""
        blob, generation = self._bucket.blob(self._name), seen["generation"] if seen else 0
        blob.metadata = {"claim": json.dumps(claim)}
        with _used(self._path):
            again = {"timeout": _ANSWER_SECONDS, "retry": self._retry(seconds)}
            blob.upload_from_string(b"", if_generation_match=generation, **again)

    def remove(self, seen: dict[str, Any]) -> None:
        """Removes what was seen; leaves what is there if it is anything else."""
        with _used(self._path):
            again = {"timeout": _ANSWER_SECONDS, "retry": self._retry(BRIEF)}
            self._bucket.blob(self._name).delete(if_generation_match=seen["generation"], **again)


@contextlib.contextmanager
def _used(path: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # which is the store's
        # Whoever looks then finds what another has written; or he himself, if the answer to the first try was lost.
        if getattr(error, "code", None) == 412:
            return
        todo = (
            "see that the bucket is there, and that this account may read and write it: `gcloud auth "
            "application-default login`; remove the claim if it is damaged and no such job runs"
        )
        raise PipelineError(
            f"{path} cannot be read or written: {getattr(error, 'message', error)}",
            expected="the claim of a job, which keeps others out of the folder beside it",
            todo="pip install google-cloud-storage" if isinstance(error, ImportError) else todo,
        ) from error
