"""Requests to the store: the client of this process, and how long it waits for an answer."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Optional, TypeVar

from tfx_estimator.pipeline.base.log import get_logger

# Seconds for which a request is repeated that the store does not answer, or refuses for its load.
PATIENCE = "TFX_ESTIMATOR_S3_PATIENCE_SECONDS"
_PATIENCE_SECONDS = 300.0
_LONGEST_PAUSE_SECONDS = 8.0
_BRIEF_SECONDS = 5.0
_THROTTLED = {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "RequestTimeout"}
NOT_IMPLEMENTED = 501
_ABSENT = {"404", "NoSuchKey", "NoSuchBucket", "NotFound"}

logger = get_logger("s3")
Result = TypeVar("Result")
_clients: dict[tuple[int, bool], Any] = {}
_making = threading.Lock()
# Why this process uses the store no more: whoever took its silence for "nothing is there" must not write.
_given_up: list[str] = []
# Another thread may hold it when this process forks.
os.register_at_fork(after_in_child=_making._at_fork_reinit)  # type: ignore[attr-defined]


class RefusedError(Exception):
    """The store does not do what it was asked; `code` is S3's code, or the status of its answer."""

    def __init__(self, code: str, status: int, message: str) -> None:
        super().__init__(message)
        self.code, self.status = code, status


class AbsentError(RefusedError):
    """There is no such object, folder or bucket."""


class UnansweredError(Exception):
    """The store has not answered for as long as PATIENCE."""


def client(brief: bool = False) -> Any:
    """Returns this process's client: region, endpoint, credentials and the rest as the AWS SDKs read them.

    Args:
        brief: It waits for an answer no longer than a claim may.
    """
    key = os.getpid(), brief
    with _making:
        if key not in _clients:
            import boto3
            from botocore.config import Config

            config = Config(
                connect_timeout=_BRIEF_SECONDS,
                read_timeout=_BRIEF_SECONDS if brief else 60,
                # `ask` repeats a request.
                retries={"mode": "standard", "total_max_attempts": 1},
                max_pool_connections=32,
                # Other servers than Amazon's do not know the newer checksums.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            )
            _clients[key] = boto3.session.Session().client("s3", config=config)
        return _clients[key]


def ask(call: Callable[[Any], Result], what: str, patience: Optional[float] = None) -> Result:
    """Returns a call's result, repeated while the store does not answer.

    TensorFlow takes "does not answer" for "is not there", and a training would start anew. So a request waits, and once
    one has waited in vain, this process gets no answer any more.

    Args:
        call: Is given the client.
        what: For messages.
        patience: In seconds, for a claim; else the declared one.

    Raises:
        AbsentError, RefusedError: As the store says.
        UnansweredError: It has not answered for as long.
    """
    seconds = float(os.environ.get(PATIENCE, _PATIENCE_SECONDS)) if patience is None else patience
    end, pause, waits = time.monotonic() + seconds, 0.25, False
    if _given_up:
        raise UnansweredError(_given_up[0])
    while True:
        try:
            result = call(client(brief=patience is not None))
        except Exception as error:  # of boto3, botocore or the system
            refusal = _refusal(error, what)
            if refusal is not None:
                raise refusal from error
            reason = f"{what}: {error}"
        else:
            if waits:
                logger.info(f"the store answers again: {what}")
            return result
        if time.monotonic() + pause > end:
            reason = f"the store did not answer for {seconds:g} s: {reason}"
            if patience is None:
                _given_up.append(reason)
            raise UnansweredError(reason)
        if not waits and pause > 1:
            logger.warning(f"the store does not answer, waiting up to {seconds:g} s: {reason}")
            waits = True
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _refusal(error: BaseException, what: str) -> Optional[RefusedError]:
    """Returns the store's or the client's refusal; None if the store did not answer, or has too much to do."""
    from boto3.exceptions import Boto3Error
    from botocore import exceptions

    if isinstance(error, Boto3Error) and error.__context__ is not None:  # of an upload in parts
        error = error.__context__
    if isinstance(error, exceptions.ClientError):
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if (status >= 500 and status != NOT_IMPLEMENTED) or status == 429 or code in _THROTTLED:
            return None
        return (AbsentError if code in _ABSENT else RefusedError)(code, status, f"{what}: {error}")
    if isinstance(error, exceptions.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return RefusedError("SSLError", 0, f"{what}: {error}")
    away = (exceptions.HTTPClientError, exceptions.ConnectionError, exceptions.IncompleteReadError)
    if isinstance(error, (*away, ConnectionError, TimeoutError)):
        return None
    # Such as no credentials, or a full disk here.
    return RefusedError(type(error).__name__, 0, f"{what}: {error}")
