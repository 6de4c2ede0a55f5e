"""The local record of a submitted job, by which it is followed and cancelled."""

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
    """A submitted job.

    Args:
        target: One of `registry.ALL_TARGETS`.
        job: The service's name of it.
        address: The URL of its page.
        context: Of the kubeconfig; None is its current one, before the job was submitted, or the pod's cluster.
        namespace: Of the training job, or of Kubeflow Pipelines; with an endpoint that of the experiment.
        endpoint: Of Kubeflow Pipelines; None connects through the Kubernetes API server.
        experiment: Of Kubeflow Pipelines; None is its default one.
        uid: Of the training job, whose name a later one may have, too.
        kind: Of the training job.
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
    """Returns the note of a started job."""
    return dataclasses.replace(note, job=job, address=service.address(job), **service.place())


def leave_note(folder: str, note: Note) -> Optional[tuple[str, str]]:
    """Writes a note, and renames that of another job, which may still run.

    Returns:
        The other job and the new file of its note; None if there is none.

    Raises:
        TfxEstimatorError: It cannot be written.
    """
    kept = None
    with writing(file := os.path.join(folder, FILE)):
        with contextlib.suppress(DeclarationError):
            former = find_note(file)
            # A namespace has one training job of a name: the former one was replaced, only address and uid differ.
            if dataclasses.replace(former, address=note.address, uid=note.uid) != note:
                kept = former.job, os.path.join(folder, f"submission-{former.job.rpartition('/')[2]}.json")
                os.rename(file, kept[1])
        fields = {key: value for key, value in dataclasses.asdict(note).items() if value}
        write_whole(file, json.dumps(fields, indent=2))
    return kept


def find_note(named: str) -> Note:
    """Finds a submitted job.

    Args:
        named: The folder of its note, the note's file, or the name of a Vertex AI pipeline job.

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
            fields = json.load(opened)
        note = Note(**{each.name: fields[each.name] for each in dataclasses.fields(Note) if each.name in fields})
        if (target := resolve(note.target)) in ALL_TARGETS and isinstance(note.job, str):
            return dataclasses.replace(note, target=target)
    except OSError as error:
        reason = f": {error.strerror}"
    except (ValueError, TypeError):
        pass
    raise DeclarationError(
        f"{named!r} is no submitted job{reason}",
        expected=f"the folder that `submit` has written, its {FILE}, or projects/…/locations/…/pipelineJobs/…",
        todo="see the line `follow it` that `submit` has printed",
    )
