"""Which accounts of Google Cloud a deployed pipeline works as, beside that of its steps, and what they may have to do.

Sources: https://cloud.google.com/vertex-ai/docs/general/custom-service-account and
https://cloud.google.com/dataflow/docs/concepts/access-control.
"""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.base.targets import KUBEFLOW_V2, VERTEX
from tfx_estimator.pipeline.config.declaration import Declaration

_AGENT = "service-NUMBER@gcp-sa-aiplatform-cc.iam.gserviceaccount.com"
_WORKERS = "NUMBER-compute@developer.gserviceaccount.com, the project's default"


def note_accounts(declaration: Declaration, target: str) -> Iterator[str]:
    """Says what accounts have to be allowed.

    Args:
        target: Where it is to be deployed.

    Yields:
        What should be known before it is.
    """
    deploy, beam = declaration.deploy, declaration.beam
    account = deploy.service_account if deploy else None
    steps = account or "the account of the steps"
    if target == VERTEX and deploy and deploy.vertex is not None:
        yield (
            f"deploy.vertex: {steps} creates, gets, lists and cancels custom jobs: it needs roles/aiplatform.user"
            + (f", and roles/iam.serviceAccountUser on {account}, itself, which the replicas run as" if account else "")
        )
        if account is None:
            yield (
                "deploy.service_account is null: the replicas of the custom job run as Vertex AI's Custom Code Service "
                f"Agent, {_AGENT}, and not as the steps do: it needs the image and the bucket"
            )
    if beam.runner == "dataflow" and beam.dataflow is not None:
        workers = beam.dataflow.service_account_email or _WORKERS
        yield (
            f"beam.runner is dataflow: {steps} starts and cancels the jobs: it needs roles/dataflow.developer in "
            f"{beam.dataflow.project}, roles/iam.serviceAccountUser on the workers' account, {workers}, and the bucket "
            "of beam.dataflow.temp_location; the workers' needs roles/dataflow.worker, the image and the bucket"
        )
        if target == KUBEFLOW_V2:
            yield (
                "beam.runner is dataflow: a run that is cancelled leaves its Dataflow job at work, for Kubeflow "
                "Pipelines 2 tells the step nothing: cancel it yourself, see docs/dataflow.md"
            )
