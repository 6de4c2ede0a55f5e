"""Which nodes of a Kubernetes cluster pods may be placed on: by the nodes' labels, and in spite of their taints."""

from __future__ import annotations

from typing import Any, Literal, Optional

from pydantic.v1 import Field, conint

from tfx_estimator.pipeline.config.section import Section


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
    seconds: Optional[conint(ge=0, le=2**31 - 1)] = Field(  # type: ignore[valid-type]
        default=None, description="for how long a taint NoExecute is borne; null is for ever"
    )

    def as_kubernetes(self) -> dict[str, Any]:
        """Returns it in Kubernetes' words."""
        values = {
            "key": self.key,
            "operator": self.operator,
            "value": self.value,
            "effect": self.effect,
            "tolerationSeconds": self.seconds,
        }
        return {name: value for name, value in values.items() if value is not None}


def placement(selector: Optional[dict[str, str]], tolerations: Optional[tuple[Toleration, ...]]) -> dict[str, Any]:
    """Returns what a pod says of its node, in Kubernetes' words; empty if nothing.

    Args:
        selector: Labels that the node must have.
    """
    made: dict[str, Any] = {}
    if selector:
        made["nodeSelector"] = dict(selector)
    if tolerations:
        made["tolerations"] = [each.as_kubernetes() for each in tolerations]
    return made
