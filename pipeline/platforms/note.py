"""What is left on this machine of a job that was submitted: enough to follow it, and to cancel it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from dataclasses import dataclass
from typing import Optional

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.files import write_whole, writing
from tfx_estimator.pipeline.platforms.follow import Service
from tfx_estimator.pipeline.platforms.registry import ALL_TARGETS, BY_NAME, resolve

FILE = "submission.json"


@dataclass(frozen=True)
class Note:
    """A job that was submitted.

    Args:
        target: One of `registry.ALL_TARGETS`.
        job: Its name, as the service knows it.
        address: Where a person sees it.
        context: Of the kubeconfig; None is its current one, before the job was submitted, or the pod's cluster.
        namespace: Of the training job, or of Kubeflow Pipelines; with an endpoint that of the experiment.
        endpoint: Of Kubeflow Pipelines; None is by way of the Kubernetes API server.
        experiment: Of Kubeflow Pipelines; None is its default one.
        uid: Of the training job, whose name another one may have later; its kind is the next.
    """

    target: str
    job: str
    address: str = ""
    project: Optional[str] = None
    region: Optional[str] = None
    context: Optional[str] = None
    namespace: Optional[str] = None
    endpoint: Optional[str] = None
    experiment: Optional[str] = None
    uid: Optional[str] = None
    kind: Optional[str] = None


def with_job(note: Note, service: Service, job: str) -> Note:
    """Returns the note of a job that was started."""
    return dataclasses.replace(note, job=job, address=service.address(job), **service.place())


def leave_note(folder: str, note: Note) -> Optional[tuple[str, str]]:
    """Leaves a note; that of another job, which may go on, is kept beside it.

    Returns:
        The other job, and the file that its note is kept in; None if there is none.

    Raises:
        TfxEstimatorError: It cannot be written.
    """
    kept = None
    with writing(file := os.path.join(folder, FILE)):
        with contextlib.suppress(DeclarationError):
            former = find_note(file)
            # A namespace has only one training job of a name, so the former one was replaced.
            if dataclasses.replace(former, address=note.address, uid=note.uid) != note:
                kept = former.job, os.path.join(folder, f"submission-{former.job.rpartition('/')[2]}.json")
                os.rename(file, kept[1])
        told = {key: value for key, value in dataclasses.asdict(note).items() if value}
        write_whole(file, json.dumps(told, indent=2))
    return kept


def find_note(named: str) -> Note:
    """Finds a job that was submitted.

    Args:
        named: The folder of its note, the note itself, or the name of a pipeline job of Vertex AI.

    Raises:
        DeclarationError: It is none of these.
    """
    for platform in BY_NAME.values():
        if platform.jobs and (match := re.fullmatch(platform.jobs, named)):
            return Note(platform.name, named, **match.groupdict())
    path = os.path.expanduser(named)
    file = os.path.join(path, FILE) if os.path.isdir(path) else path
    reason = ""
    try:
        with open(file, encoding="utf-8") as opened:
            told = json.load(opened)
        note = Note(**{each.name: told[each.name] for each in dataclasses.fields(Note) if each.name in told})
        if (target := resolve(note.target)) in ALL_TARGETS and isinstance(note.job, str):
            return dataclasses.replace(note, target=target)
    except OSError as error:
        reason = f": {error.strerror}"
    except (ValueError, TypeError):
        pass
    raise DeclarationError(
        f"{named!r} is no job that was submitted{reason}",
        expected=f"the folder that `submit` has left, its {FILE}, or projects/…/locations/…/pipelineJobs/…",
        todo="see the line `follow it` that `submit` has printed",
    )
