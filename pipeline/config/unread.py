"""What a declaration says to the trained code, and nothing takes from it: found by the code's text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.yaml_text import inline
from tfx_estimator.pipeline.user_source.functions import (
    Keys,
    argument_names,
    find_arguments,
    is_model_fn,
    is_read,
    params_read,
)

_OPTIMIZER, _PARAMS = "trainer.optimizer.", "trainer.params."
_OF_THE_LOSS = ("label_smoothing", "class_weights")


def keys_of(path: str) -> Keys:
    """Returns the keys in a model_fn's `params` of a value: `trainer.optimizer.name` is `("optimizer", "name")`.

    Returns:
        The keys; none for what is not handed on.
    """
    for key in _OF_THE_LOSS:
        if path == f"trainer.{key}" or path.startswith(f"trainer.{key}."):
            # Weights arrive by label, whichever class they were declared for.
            return (key,)
    if path.startswith(_PARAMS):
        return tuple(path.removeprefix(_PARAMS).split("."))
    return tuple(path.removeprefix("trainer.").split(".")) if path.startswith(_OPTIMIZER) else ()


def find_unread(declaration: Declaration, declared: Iterable[str], search_paths: Sequence[str]) -> Iterator[str]:
    """Finds what is written down, by dotted path, and has no effect; nothing where the text cannot tell."""
    trainer = declaration.trainer
    told = {path: keys for path in declared if (keys := keys_of(path))}
    if not told:
        return
    read: set[Keys] | None = set()
    if trainer.module_file is None:
        arguments = find_arguments(trainer.target, search_paths)
        if arguments is None or not is_model_fn(argument_names(arguments)):
            return
        read = params_read(trainer.target, search_paths)
    if read is not None:
        yield from (path for path, keys in told.items() if not is_read(keys, read))


def word_unread(trainer: TrainerSection, paths: Sequence[str]) -> str:
    """Says that values have no effect, and why."""
    which = ", ".join(map(inline, paths))
    verb, them = ("has", "it") if len(paths) == 1 else ("have", "them")
    if trainer.module_file is not None:
        return f"{which} {verb} no effect: a module file brings its own"
    return f"{which} {verb} no effect: {trainer.model} does not take {them} out of params"
