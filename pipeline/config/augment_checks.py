"""Checks of `trainer.augment` against the rest of the declaration."""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.config.augment import find_unfit
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.yaml_text import inline

_PATH = "trainer.augment"
# Height, width and channels of the images of the presets' data sets, as they are without `data.image_size`.
_SHAPES = {"digits": (28, 28, 1), "mnist": (28, 28, 1), "cifar10": (32, 32, 3)}


def check_augment(declaration: Declaration) -> Iterator[Problem]:
    """Checks that there are images to vary, and that the operations fit them.

    Args:
        declaration: Typed values.

    Yields:
        The problems.
    """
    trainer, transform = declaration.trainer, declaration.transform
    for index, operation in enumerate(trainer.augment):
        names = list(operation.declared)
        if len(names) != 1:
            what = f"{' and '.join(names)} in one item: which of them comes first?" if names else "an empty item"
            todo = f"write [{', '.join(f'{{{name}: …}}' for name in names)}]" if names else "remove it"
            yield Problem(f"{_PATH}.{index}", what, "one operation an item", todo)
        moves = operation.random_translation
        if moves and not (moves.height_factor or moves.width_factor):
            yield Problem(
                f"{_PATH}.{index}.random_translation",
                "of 0 both ways, it moves no image",
                "a height_factor or a width_factor of more than 0",
                "raise one of them, or remove random_translation",
                value=inline(moves.dict()),
            )
    if trainer.augment and trainer.module_file is not None:
        yield Problem(
            _PATH,
            "a module file reads its examples itself, so that nothing would be varied",
            "trainer.augment only where trainer.model is given",
            "remove it, and vary the images in the module file's own input_fn; or name a trainer.model",
            value=inline([operation.dict() for operation in trainer.augment]),
            depends=("trainer.module_file",),
        )
    # A preprocessing_fn of the user's may make images of another shape.
    if transform.target != type(transform)().target:
        return
    shape = _SHAPES.get(declaration.data.dataset, ())
    for index, operation in enumerate(trainer.augment if shape[2:] == (1,) else ()):
        if operation.random_saturation:
            yield Problem(
                f"{_PATH}.{index}",
                f"random_saturation, and the images of {declaration.data.dataset} have 1 channel",
                "3 channels: red, green, blue",
                "remove random_saturation",
                depends=("data.dataset",),
            )
    size = declaration.data.image_size or shape[:2]
    if not size:
        return
    for path, value, expected in find_unfit(trainer.augment, *size):
        yield Problem(
            f"{_PATH}.{path}",
            f"the images have {size[0]} x {size[1]} pixels",
            expected,
            "choose another value",
            value=str(value),
            depends=("data.image_size", "data.dataset"),
        )
