"""Which nodes of a Kubernetes cluster pods may be placed on: by the nodes' labels, and in spite of their taints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Optional

from pydantic.v1 import Field, conint

from tfx_estimator.pipeline.config.label_checks import fits_kubernetes
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.section import Section

_LABEL = "a label of Kubernetes, as in `kubectl get nodes --show-labels`"


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
        tolerations: Its taints that are borne.
    """
    made: dict[str, Any] = {}
    if selector:
        made["nodeSelector"] = dict(selector)
    if tolerations:
        made["tolerations"] = [each.as_kubernetes() for each in tolerations]
    return made


def check_placement(
    selector: Optional[dict[str, str]], tolerations: Optional[tuple[Toleration, ...]], path: str
) -> Iterator[Problem]:
    """Checks what is said of nodes, as a Kubernetes API server would.

    Args:
        selector: As of `placement`.
        tolerations: Likewise.
        path: Dotted, of its section.

    Yields:
        The problems.
    """
    for key, value in (selector or {}).items():
        if not fits_kubernetes(key, value):
            what, shown = "no node has such a label", f"{key}: {value}"
            yield Problem(f"{path}.node_selector", what, _LABEL, "correct it", value=shown)
    where = f"{path}.tolerations"
    for each in tolerations or ():
        if each.key is None and each.operator != "Exists":
            what, expected = "a toleration without a key bears every taint", "key, or operator: Exists"
            yield Problem(where, what, expected, "add one of the two")
        elif not fits_kubernetes(each.key or "any", each.value or ""):
            what, expected = "no taint is called so", "key and value as in `kubectl describe node`"
            yield Problem(where, what, expected, "correct it", value=f"{each.key}: {each.value}")
        if each.operator == "Exists" and each.value:
            what, expected = "operator: Exists bears the taint whatever its value is", "no value"
            yield Problem(where, what, expected, "remove one of the two", value=each.value)
        if each.seconds is not None and each.effect != "NoExecute":
            what = "only a taint NoExecute ends pods that are there, and is borne for some seconds"
            yield Problem(where, what, "effect: NoExecute", "remove seconds, or add it", value=str(each.seconds))
