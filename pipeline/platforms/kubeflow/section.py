"""Settings of Kubernetes pods: nodes, volumes, users and permissions."""

from __future__ import annotations

from typing import Any, Literal, Optional

from tfx_estimator.pipeline.config.section import Field, Section, number

# The uid of the image's user: see Dockerfile.
_UID = 10001
_MOST = 2**31 - 1


class Toleration(Section):
    """A toleration of a node's taint."""

    key: Optional[str] = Field(default=None, description="of the taint; null is any, with operator Exists")
    operator: Literal["Equal", "Exists"] = Field(default="Equal", description="Exists tolerates any value of the taint")
    value: Optional[str] = Field(default=None, description="of the taint, with Equal; null is the empty value")
    effect: Optional[Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]] = Field(
        default=None, description="of the taint; null is any"
    )
    seconds: Optional[int] = number(None, 0, _MOST, "how long a taint NoExecute is tolerated; null is forever")

    def as_kubernetes(self) -> dict[str, Any]:
        """Returns its fields by Kubernetes' names."""
        values = {"tolerationSeconds" if name == "seconds" else name: value for name, value in self.dict().items()}
        return {name: value for name, value in values.items() if value is not None}


def placement(selector: Optional[dict[str, str]], tolerations: Optional[tuple[Toleration, ...]]) -> dict[str, Any]:
    """Returns a pod spec's `nodeSelector` and `tolerations`, as far as there are any."""
    fields: dict[str, Any] = {}
    if selector:
        fields["nodeSelector"] = dict(selector)
    if tolerations:
        fields["tolerations"] = [each.as_kubernetes() for each in tolerations]
    return fields


class Volume(Section):
    """A persistent volume claim, mounted in every step."""

    claim: str = Field(..., description="name of the PersistentVolumeClaim")
    path: str = Field(..., description="mount path")
    read_only: bool = Field(default=False, description="whether it is mounted read-only")


class Secret(Section):
    """A Kubernetes Secret, mounted in every step; its keys become files."""

    name: str = Field(..., description="name of the Secret, which exists in the cluster")
    path: str = Field(..., description="the folder that holds its keys as files")


class SecurityContext(Section):
    """The securityContext of every pod and container."""

    standard: Literal["restricted", "none"] = Field(
        default="restricted",
        description="restricted meets Kubernetes' Pod Security Standard of that name; none sets nothing, for images "
        "that run as root",
    )
    run_as_user: Optional[int] = number(
        _UID,
        1,
        _MOST,
        "uid of every container, not 0; the default is that of tfx-estimator's image; null is the image's own, or "
        "the cluster's",
    )
    fs_group: Optional[int] = number(
        _UID,
        1,
        _MOST,
        "gid that may write to volumes: Kubernetes makes it the group of a new one; null leaves the group unchanged",
    )

    def of_pod(self) -> dict[str, Any]:
        """Returns a pod's `securityContext`; empty for none.

        Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/.
        """
        if self.standard == "none":
            return {}
        context: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        if self.run_as_user is not None:
            context["runAsUser"] = self.run_as_user
        if self.fs_group is not None:
            # Otherwise Kubernetes walks through every file of a volume each time that a pod starts.
            context.update(fsGroup=self.fs_group, fsGroupChangePolicy="OnRootMismatch")
        return context

    def of_container(self) -> dict[str, Any]:
        """Returns a container's `securityContext`; empty for none."""
        if self.standard == "none":
            return {}
        return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
