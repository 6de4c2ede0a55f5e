"""Claims in an object store, which changes them only under a condition: gs:// and s3://."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, Optional, Union

from tfx_estimator.pipeline.base import s3
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.config.paths import reject_store

# Timeout of a request to the store, and of its retries. A heartbeat's timeouts must end before the claim is abandoned.
_ANSWER_SECONDS, LONG, BRIEF = 10.0, 120.0, 10.0


class GcsClaim:
    """A claim in Cloud Storage, changed only if the object still has the generation that was `seen`."""

    def __init__(self, path: str) -> None:
        self._path = path
        bucket, _, self._name = path.removeprefix("gs://").partition("/")
        with store_errors(path):
            from google.cloud import storage
            from google.cloud.storage.retry import DEFAULT_RETRY

            self._retry = DEFAULT_RETRY.with_timeout
            self._bucket = storage.Client(project=None).bucket(bucket)

    def read(self, seconds: float = LONG) -> Optional[dict[str, Any]]:
        """Returns the claim and its generation, if any."""
        with store_errors(self._path):
            blob = self._bucket.get_blob(self._name, timeout=_ANSWER_SECONDS, retry=self._retry(seconds))
            return blob and {**json.loads(blob.metadata["claim"]), "generation": blob.generation}

    def write(self, claim: dict[str, Any], seen: Optional[dict[str, Any]], seconds: float = LONG) -> None:
        """Replaces the claim that was `seen`, or creates it if that is None; keeps any other claim."""
        blob, generation = self._bucket.blob(self._name), seen["generation"] if seen else 0
        blob.metadata = {"claim": json.dumps(claim)}
        with store_errors(self._path):
            again = {"timeout": _ANSWER_SECONDS, "retry": self._retry(seconds)}
            blob.upload_from_string(b"", if_generation_match=generation, **again)

    def remove(self, seen: dict[str, Any]) -> None:
        """Removes the claim that was `seen`; keeps any other claim."""
        with store_errors(self._path):
            again = {"timeout": _ANSWER_SECONDS, "retry": self._retry(BRIEF)}
            self._bucket.blob(self._name).delete(if_generation_match=seen["generation"], **again)


class S3Claim:
    """A claim in S3, changed only if the object still has the ETag that was `seen`."""

    def __init__(self, path: str) -> None:
        from tfx_estimator.pipeline.base.s3 import asking, store

        self._store, self._path, self._place = store, path, store.Place.of(path)
        self._absent, self._refused = asking.AbsentError, asking.RefusedError
        self._is_kept = False

    def read(self, seconds: float = LONG) -> Optional[dict[str, Any]]:
        """Returns the claim and its ETag, if any."""
        with store_errors(self._path), contextlib.suppress(self._absent):
            content, etag = self._store.read_whole(self._place, seconds)
            return {**json.loads(content), "generation": etag}
        return None

    def write(self, claim: dict[str, Any], seen: Optional[dict[str, Any]], seconds: float = LONG) -> None:
        """Replaces the claim that was `seen`, or creates it if that is None; keeps any other claim."""
        content = json.dumps(claim).encode()
        with store_errors(self._path):
            self._store.write_whole(self._place, content, seen["generation"] if seen else None, seconds)
            # Some servers ignore conditions without a word. On the others this changes nothing.
            for wrong in (None, '"0"') if not self._is_kept else ():
                with contextlib.suppress(self._refused):
                    self._store.write_whole(self._place, content, wrong, seconds)
                    raise PipelineError(
                        f"{self._path}: this store ignores the condition of a write (If-None-Match, If-Match), so two "
                        "runs could use the folder at once",
                        expected="a store with conditional writes, as Amazon S3 and MinIO have them",
                        todo="use another server or a newer version of it, or a folder on this machine",
                    )
            self._is_kept = True

    def remove(self, seen: dict[str, Any]) -> None:
        """Removes the claim that was `seen`; keeps any other claim."""
        with store_errors(self._path):
            self._store.remove_if(self._place, seen["generation"], BRIEF)


def claim_in_store(path: str) -> Union[GcsClaim, S3Claim]:
    """Returns the claim at an address; raises PipelineError if there is no client for it."""
    if reason := reject_store(path):
        raise PipelineError(f"{path}: {reason}", expected="gs://… or s3://BUCKET/FOLDER, or a folder", todo="name one")
    return S3Claim(path) if path.startswith(s3.SCHEME) else GcsClaim(path)


def account_of(address: str) -> str:
    """Returns how the account of a store is set, for messages."""
    if address.startswith(s3.SCHEME):
        return "AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID or AWS_PROFILE"
    return "`gcloud auth application-default login`"


@contextlib.contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Converts errors of a store, or of a mounted folder, to PipelineError; ends at one that says: it has changed."""
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:  # of the store's client
        # The object has changed, by another job, or by this one if the response to its first try was lost.
        # Reading the claim back tells.
        if getattr(error, "code", None) == 412 or getattr(error, "status", None) in (404, 409, 412):
            return
        raise PipelineError(
            f"{path} cannot be read or written: {getattr(error, 'message', error)}",
            expected="the claim of a job, which excludes others from the folder next to it",
            todo="check that the bucket exists, and that this account may read and write it: "
            f"{account_of(path)}; remove the claim if it is damaged and no such job runs",
        ) from error
