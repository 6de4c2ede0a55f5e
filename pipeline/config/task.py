"""What a model predicts of an example."""

from __future__ import annotations

from dataclasses import dataclass

CLASSES, BINARY, REGRESSION = "classes", "binary", "regression"


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
