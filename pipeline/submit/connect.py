"""Finds the service that runs a job: of a declaration that is to be submitted, or of one that was."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import Optional

from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.targets import TFJOB, VERTEX
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.services.follow import LostError, Service
from tfx_estimator.pipeline.submit.note import Note

_LOGS = "logs"


def place_of(
    deploy: DeploySection,
    target: str,
    context: Optional[str] = None,
    namespace: Optional[str] = None,
    endpoint: Optional[str] = None,
    experiment: Optional[str] = None,
) -> Note:
    """Returns a note of where a declaration is submitted to, without a job yet; nobody is asked.

    Args:
        target: One of `targets.ALL_TARGETS`.
        context: Of the kubeconfig, for Kubeflow Pipelines; None is its current one.
        namespace: Likewise; None is that of Kubeflow Pipelines. With an endpoint, that of the experiment.
        endpoint: Likewise; None is by way of the Kubernetes API server.
        experiment: Likewise; None is its default one.
    """
    if target == VERTEX:
        return Note(target, "", project=deploy.project, region=deploy.region)
    if endpoint:
        return Note(target, "", namespace=namespace, endpoint=endpoint, experiment=experiment)
    from tfx_estimator.components.trainer.tfjob import api
    from tfx_estimator.pipeline.services import kubernetes
    from tfx_estimator.pipeline.submit import kubeflow

    if target == TFJOB:
        context, namespace = deploy.tfjob.context, deploy.tfjob.namespace
    found = ""
    # Fixes the context that the plan shows, as the current one may change later. connect() reports a missing cluster;
    # here that is no error.
    with contextlib.suppress(PipelineError):
        context, found = kubernetes.find_context(context)
        found = found or api.NAMESPACE
    namespace = namespace or (found if target == TFJOB else kubeflow.NAMESPACE) or None
    return Note(target, "", context=context, namespace=namespace, experiment=experiment)


def connect(
    note: Note, folder: str, text: str = "", name: str = "", digest: str = "", account: Optional[str] = None
) -> Service:
    """Connects to the service of a note.

    Args:
        folder: For logs of pods.
        text: What was compiled; empty where a job is only followed, as the next two.
        account: That the steps run as; None is the service's default.

    Raises:
        PipelineError: There is no such service, or no account for it; or the job of the note is in another cluster.
        LostError: It does not answer.
    """
    if note.target == VERTEX:
        from tfx_estimator.pipeline.submit import vertex

        region = note.region or ""
        return vertex.Vertex(vertex.connect(region), note.project or "", region, text, name, digest, account)
    if note.target == TFJOB:
        from tfx_estimator.components.trainer.tfjob import api
        from tfx_estimator.pipeline.submit.tfjobs import TfJobs

        kube = api.Kube(note.context, note.namespace)
        _check_host(note, kube.host)
        try:
            kube.jobs()
        except LostError as error:
            raise LostError(f"{kube.host}: {error}") from error
        return TfJobs(kube, os.path.join(folder, _LOGS), text, digest, note.uid)
    from tfx_estimator.pipeline.submit.kubeflow import Kubeflow

    run = f"{name}-{digest}"
    service = Kubeflow(note.target, note.endpoint, note.context, note.namespace, text, run, account, note.experiment)
    _check_host(note, service.host)
    return service


def with_job(note: Note, service: Service, job: str) -> Note:
    """Returns the note of a job that was started."""
    return dataclasses.replace(note, job=job, address=service.address(job), **service.place())


def _check_host(note: Note, host: str) -> None:
    if note.host not in (None, host):
        context = f"the context {note.context}" if note.context else "the cluster that is known here"
        raise PipelineError(
            f"the job {note.job} was submitted to the cluster {note.host}, and {context} is of {host} now",
            expected="a kubeconfig by which that cluster is reached",
            todo="name it in KUBECONFIG; or, if it is the same cluster, correct `host` in the job's note",
        )
