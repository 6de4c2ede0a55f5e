"""The section `deploy.security_context`: who the pods of Kubernetes run as, and what they may."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Optional

from pydantic.v1 import Field, conint

from tfx_estimator.pipeline.base.targets import KUBEFLOW, KUBEFLOW_V2, TFJOB, VERTEX
from tfx_estimator.pipeline.config.section import Section

if TYPE_CHECKING:
    from tfx_estimator.pipeline.config.deploy import DeploySection

# The uid of the image's user: see Dockerfile.
_UID = 10001
_MOST = 2**31 - 1
_PATH = "deploy.security_context"
_NO_EFFECT = {
    VERTEX: "Vertex AI has no pods of yours",
    KUBEFLOW_V2: "a PipelineSpec has no field for it; the cluster's own settings hold, see docs/kubeflow.md",
}


class SecurityContext(Section):
    """What every pod says of itself, in Kubernetes' words its securityContext; of the targets kubeflow and tfjob."""

    standard: Literal["restricted", "none"] = Field(
        default="restricted",
        description="what Kubernetes' Pod Security Standard of that name asks of pods; none says nothing: for an image "
        "that runs as root",
    )
    run_as_user: Optional[conint(ge=1, le=_MOST)] = Field(  # type: ignore[valid-type]
        default=_UID,
        description="uid of every container, not root's, 0; the default is that of tfx-estimator's image; null is the "
        "image's own, or the cluster's",
    )
    fs_group: Optional[conint(ge=1, le=_MOST)] = Field(  # type: ignore[valid-type]
        default=_UID,
        description="gid that may write in volumes: Kubernetes gives a fresh one to it; null leaves them as they are",
    )

    def of_pod(self) -> dict[str, Any]:
        """Returns a pod's `securityContext`; empty is none.

        Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/.
        """
        if self.standard == "none":
            return {}
        made: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        if self.run_as_user is not None:
            made["runAsUser"] = self.run_as_user
        if self.fs_group is not None:
            # A volume with a million files would else be gone through each time that a pod starts.
            made.update(fsGroup=self.fs_group, fsGroupChangePolicy="OnRootMismatch")
        return made

    def of_container(self) -> dict[str, Any]:
        """Returns a container's; likewise."""
        if self.standard == "none":
            return {}
        return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def find_idle_context(deploy: DeploySection, declared: Sequence[str], target: str) -> Iterator[tuple[str, str]]:
    """Finds what is said of pods, and reaches none.

    Args:
        target: Where it is to be deployed.

    Yields:
        A dotted path, and what to say of it.
    """
    paths = [path for key in SecurityContext.__fields__ if (path := f"{_PATH}.{key}") in declared]
    what = _NO_EFFECT.get(target, "")
    if not what and deploy.security_context.standard == "none":
        paths = [path for path in paths if path != f"{_PATH}.standard"]
        what = f"{_PATH}.standard is none: pods say nothing of users and groups"
    if what and paths:
        yield paths[0], f"{', '.join(paths)}: no effect: {what}"


def note_context(deploy: DeploySection, target: str) -> Iterator[str]:
    """Says what the pods need of the cluster.

    Args:
        target: Where it is to be deployed.
    """
    if "security_context" not in deploy.__fields_set__ and target in (KUBEFLOW, TFJOB):
        yield (
            f"{_PATH} is not declared: pods run as uid {_UID}, and volumes are of group {_UID}, as tfx-estimator's "
            "image wants it; an image with another user: see docs/deploy.md"
        )
