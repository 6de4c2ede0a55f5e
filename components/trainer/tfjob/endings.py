"""How a TFJob has ended, and how training in one ends otherwise."""

from __future__ import annotations

import contextlib

from tfx_estimator.components.trainer.tfjob.api import Kube, LostError, Object
from tfx_estimator.pipeline.base import errors

# The operator leaves a TFJob in this state if one pod failed for good while another one was being restarted.
RESTARTING = "Restarting"


def notes_of(there: Object) -> dict[str, str]:
    """Returns the annotations of an object of Kubernetes."""
    return there["metadata"].get("annotations") or {}


def end_of(there: Object) -> tuple[str, Object]:
    """Returns `Succeeded` or `Failed`, and the condition that says so; empty if the TFJob goes on."""
    for condition in there.get("status", {}).get("conditions", ()):
        if condition["type"] in ("Succeeded", "Failed") and condition["status"] == "True":
            return condition["type"], condition
    return "", {}


def state_of(there: Object) -> str:
    """Returns the last condition of a TFJob that holds; empty if none does yet."""
    conditions = [each["type"] for each in there.get("status", {}).get("conditions", ()) if each["status"] == "True"]
    return conditions[-1] if conditions else ""


def is_suspended(there: Object) -> bool:
    """Is a TFJob suspended, and so without pods; a queue does that until there is room."""
    return bool(there["spec"].get("runPolicy", {}).get("suspend"))


def is_left_restarting(kube: Kube, name: str, uid: str) -> bool:
    """Asks once more whether a TFJob is Restarting; it is not where that cannot be told."""
    with contextlib.suppress(LostError, errors.TfxEstimatorError):
        there = kube.read(name)
        return there is not None and there["metadata"]["uid"] == uid and state_of(there) == RESTARTING
    return False


def short(error: Exception) -> str:
    """Returns what was wrong, without what to do."""
    return error.what if isinstance(error, errors.TfxEstimatorError) else str(error)


def deleted(place: str) -> errors.TaskFailedError:
    """Returns the error of a TFJob that somebody else has deleted."""
    return errors.TaskFailedError(
        f"the TFJob {place} was deleted, and not by this run",
        todo="run the same again: training goes on from the last checkpoint",
    )


def unreachable(host: str, error: Exception, seconds: float) -> errors.PipelineError:
    """Returns the error of a server that does not answer.

    Args:
        error: Of the last try.
        seconds: For how long it was tried.
    """
    return errors.PipelineError(
        f"the Kubernetes API server {host} has not answered for {seconds:g} s: {short(error)}",
        expected="an answer within trainer.stall_timeout",
        todo="run the same again when it does: the TFJob goes on meanwhile, and is adopted",
    )
