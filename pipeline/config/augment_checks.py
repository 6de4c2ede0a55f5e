"""Checks of `trainer.augment` against the rest of the declaration."""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.yaml_text import inline

_PATH = "trainer.augment"


def check_augment(declaration: Declaration) -> Iterator[Problem]:
    """Checks that there are images to vary, by one operation after the other."""
    trainer = declaration.trainer
    for index, operation in enumerate(trainer.augment):
        names = list(operation.declared)
        if len(names) != 1:
            what = f"{' and '.join(names)} in one item: which of them comes first?" if names else "an empty item"
            todo = f"write [{', '.join(f'{{{name}: …}}' for name in names)}]" if names else "remove it"
            yield Problem(f"{_PATH}.{index}", what, "one operation an item", todo)
    if trainer.augment and trainer.module_file is not None:
        yield Problem(
            _PATH,
            "a module file reads its examples itself, so that nothing would be varied",
            "trainer.augment only where trainer.model is given",
            "remove it, and vary the images in the module file's own input_fn; or name a trainer.model",
            value=inline([operation.dict() for operation in trainer.augment]),
            depends=("trainer.module_file",),
        )
