"""What a model predicts of an example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from tfx_estimator.pipeline.user_data.table import Column

CLASSES, BINARY, REGRESSION = "classes", "binary", "regression"
# A property of a trained model, by which models are comparable: JSON whose `data` has, of a table, its task's fields.
COMPARABLE = "comparable"
# More different whole numbers are rather measured or counted.
_MAX_CLASSES = 20


@dataclass(frozen=True)
class Task:
    """The label, and what kind of prediction it asks for.

    Args:
        kind: `classes`, `binary` or `regression`.
        label: The label's feature, of the examples or made by the preprocessing_fn.
        names: The classes, in the order of their labels; none for a regression, or where labels are numbers.
        weight: The feature with the examples' weights; empty for none.
        preprocessed: The label, and the weight, are read after the preprocessing_fn, which may make or change them.
    """

    kind: str
    label: str
    names: tuple[str, ...] = ()
    weight: str = ""
    preprocessed: bool = False

    @property
    def is_of_images(self) -> bool:
        """True for the classes of images, whose labels no preprocessing_fn may change."""
        return self.kind == CLASSES and not self.preprocessed

    @property
    def width(self) -> Optional[int]:
        """The number of classes, 1 of a regression; None if unknown."""
        return {BINARY: 2, REGRESSION: 1}.get(self.kind) or len(self.names) or None


def task_of(label: Column) -> str:
    """Returns the kind of task that a label's column shows; empty if it shows none for sure."""
    if label.kind == "bytes":
        # With another value in every other row, it is a text, or an id.
        known = 1 < label.distinct == len(label.values) <= sum(label.values.values()) / 2
        return (BINARY if label.distinct == 2 else CLASSES) if known else ""
    # 1 and 1.0 are one number.
    count = len(numbers := sorted({*map(float, label.values)}))
    if count < 2 or not all(map(float.is_integer, numbers)):
        return REGRESSION if count > 1 else ""
    if numbers[0] in (0, 1) and numbers[-1] - numbers[0] == count - 1:
        return BINARY if count == 2 else "" if count > _MAX_CLASSES else CLASSES
    return REGRESSION if count > _MAX_CLASSES else BINARY if count == 2 else ""
