"""The syntax of TFDS split expressions, checked without TensorFlow Datasets.

See https://www.tensorflow.org/datasets/splits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

EXAMPLES = "a TFDS split expression such as train, train[:90%], train[10000:], train[:5%]+train[95%:]"

_Bound = tuple[float, Optional[str]]

_PART = re.compile(r"^(?P<name>[\w-]+)(\[(?P<selector>[\d\w%:.-]+)\])?$")
_BOUND = re.compile(r"^(?:(?P<value>-?\d[\d_]*(?P<fraction>\.\d+)?)(?P<unit>%|shard)?)?$")


def reject_split(expression: str) -> str:
    """Says why TFDS would not take a split expression, as far as its text tells.

    Args:
        expression: For example `train[:90%]+test`.

    Returns:
        The reason, or an empty text.
    """
    if "ReadInstruction" in expression:
        return "tfds.core.ReadInstruction is not supported in a declaration"
    return next((reason for part in expression.split("+") if (reason := _reject_part(part.strip()))), "")


def split_names(expression: str) -> list[str]:
    """Returns the names of the splits in an expression."""
    return [part.strip().partition("[")[0] for part in expression.split("+")]


def suggest_splits(names: Sequence[str]) -> str:
    """Returns what to write for a data set with these splits.

    Args:
        names: At least one.
    """
    train = "train" if "train" in names else names[0]
    others = [name for name in names if name != train]
    if not others:
        return f"splits: {{train: '{train}[:90%]', eval: '{train}[90%:]'}}"
    known = [name for name in ("test", "validation", "valid", "val", "eval", "dev") if name in others]
    return f"splits: {{train: '{train}', eval: '{(known or others)[0]}'}}"


def _reject_part(part: str) -> str:
    match = _PART.match(part)
    if not match:
        return f"{part!r} is no split expression" if part else "a part of the expression is empty"
    selector = match["selector"]
    if selector is None:
        return ""
    if match["name"] == "all":
        return "`all` takes no slice"
    bounds = [_BOUND.match(text) for text in selector.split(":")]
    if len(bounds) > 2 or not all(bounds) or selector == ":":
        return f"[{selector}] is no slice"
    if any(bound and bound["fraction"] and bound["unit"] != "%" for bound in bounds):
        return f"[{selector}] is no slice: only percentages may be fractions"
    found = [(float(b["value"]), b["unit"]) if b and b["value"] else None for b in bounds]
    if len(found) == 1:
        return "" if found[0] and found[0][1] == "shard" else f"[{selector}] is no slice: the colon is missing"
    return _reject_range(found[0], found[1], selector)


def _reject_range(start: Optional[_Bound], stop: Optional[_Bound], selector: str) -> str:
    if start and stop and start[1] != stop[1] and start[0] != 0:
        return f"[{selector}] mixes units"
    if any(bound and bound[1] == "%" and abs(bound[0]) > 100 for bound in (start, stop)):
        return f"[{selector}] goes beyond 100%"
    low, high = start[0] if start else 0, stop[0] if stop else None
    if high == 0 or (high is not None and low >= high and (low >= 0) == (high >= 0)):
        return f"[{selector}] is empty"
    return ""
