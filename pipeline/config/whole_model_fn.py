"""Is what `trainer.model` names a whole model_fn, which trains by a step of its own, or a function of a network."""

from __future__ import annotations

from collections.abc import Sequence

from tfx_estimator.pipeline.config.builtin import expand
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.user_source.functions import argument_names, find_arguments, is_model_fn


def is_whole(target: str, search_paths: Sequence[str]) -> bool:
    """Tells a whole model_fn from a function that returns a network, as far as the text can.

    Args:
        target: `trainer.model`.
        search_paths: Folders where the user's modules are looked for before `sys.path`.
    """
    arguments = find_arguments(expand("trainer.model", target), search_paths)
    return arguments is not None and is_model_fn(argument_names(arguments))


def find_own(trainer: TrainerSection, search_paths: Sequence[str]) -> str:
    """Returns whose network and step are not the declaration's, to begin a sentence with; empty where they are.

    Args:
        search_paths: Folders where the user's modules are looked for before `sys.path`.
    """
    if trainer.module_file is not None:
        return "a module file's trainer_fn or run_fn"
    whole = trainer.model is not None and is_whole(trainer.model, search_paths)
    return f"{trainer.model} is a whole Estimator model_fn: it" if whole else ""
