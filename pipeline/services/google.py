"""What a client of Google's says when its service refuses, or does not answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.base.text import first_line
from tfx_estimator.pipeline.services.follow import LostError

LOGIN = "gcloud auth application-default login; or name the file of a key in GOOGLE_APPLICATION_CREDENTIALS"

_Told = TypeVar("_Told")


def asked(ask: Callable[[], _Told], refused: Callable[[Exception], TfxEstimatorError]) -> _Told:
    """Asks a service of Google's; what is no error of its client's is a mistake of ours, which no wait mends.

    Args:
        refused: Makes the error of a service that would say the same once more.

    Raises:
        LostError: The service did not answer, or not for now.
    """
    import grpc
    from google.api_core import exceptions as of
    from google.auth.exceptions import GoogleAuthError, RefreshError

    # Credentials that have ended, which gRPC takes for a service that does not answer; others may be refreshed later.
    ended = ("invalid_grant", "Reauthentication")
    refusals = (of.BadRequest, of.Unauthorized, of.Forbidden, of.NotFound, of.MethodNotImplemented)
    try:
        return ask()
    except (of.GoogleAPIError, GoogleAuthError, grpc.RpcError, OSError) as error:
        if isinstance(error, (RefreshError, of.ServiceUnavailable)) and any(word in str(error) for word in ended):
            wrong = refused(error)
            wrong.todo = f"{LOGIN}; a job that was submitted goes on"
            raise wrong from error
        # Google's library reports invalid credentials by a subclass of ValueError.
        if isinstance(error, (*refusals, TypeError, ValueError)):
            raise refused(error) from error
        raise LostError(first_line(error)) from error
