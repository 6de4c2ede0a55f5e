"""What pods of Kubernetes say of themselves: their nodes, what is mounted, who they run as, and what they may do."""

from __future__ import annotations

from typing import Any, Literal, Optional

from tfx_estimator.pipeline.config.section import Field, Section, number

# The uid of the image's user: see Dockerfile.
_UID = 10001
_MOST = 2**31 - 1


class Toleration(Section):
    """A taint of nodes that a pod bears."""

    key: Optional[str] = Field(default=None, description="of the taint; null is any, with operator Exists")
    operator: Literal["Equal", "Exists"] = Field(
        default="Equal", description="Exists bears the taint whatever its value is"
    )
    value: Optional[str] = Field(default=None, description="of the taint, with Equal; null is the empty one")
    effect: Optional[Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]] = Field(
        default=None, description="of the taint; null is any"
    )
    seconds: Optional[int] = number(None, 0, _MOST, "for how long a taint NoExecute is borne; null is for ever")

    def as_kubernetes(self) -> dict[str, Any]:
        """Returns it in Kubernetes' words."""
        values = {"tolerationSeconds" if name == "seconds" else name: value for name, value in self.dict().items()}
        return {name: value for name, value in values.items() if value is not None}


def placement(selector: Optional[dict[str, str]], tolerations: Optional[tuple[Toleration, ...]]) -> dict[str, Any]:
    """Returns what a pod says of its node, in Kubernetes' words; empty if nothing."""
    made: dict[str, Any] = {}
    if selector:
        made["nodeSelector"] = dict(selector)
    if tolerations:
        made["tolerations"] = [each.as_kubernetes() for each in tolerations]
    return made


class Volume(Section):
    """A persistent volume claim, mounted in every step."""

    claim: str = Field(..., description="name of the PersistentVolumeClaim")
    path: str = Field(..., description="where it is mounted")
    read_only: bool = Field(default=False, description="whether no step may write there")


class Secret(Section):
    """A Kubernetes Secret, by its name; its keys become files in every step."""

    name: str = Field(..., description="name of the Secret, which is in the cluster already")
    path: str = Field(..., description="the folder that holds its keys as files")


class SecurityContext(Section):
    """What every pod says of itself, in Kubernetes' words its securityContext."""

    standard: Literal["restricted", "none"] = Field(
        default="restricted",
        description="what Kubernetes' Pod Security Standard of that name asks of pods; none says nothing: for an image "
        "that runs as root",
    )
    run_as_user: Optional[int] = number(
        _UID,
        1,
        _MOST,
        "uid of every container, not root's, 0; the default is that of tfx-estimator's image; null is the "
        "image's own, or the cluster's",
    )
    fs_group: Optional[int] = number(
        _UID,
        1,
        _MOST,
        "gid that may write in volumes: Kubernetes gives a fresh one to it; null leaves them as they are",
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
