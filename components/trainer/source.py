"""The source code that decides a Trainer's model, which is part of its cache key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tfx_estimator.components.trainer.settings import ESTIMATOR, KERAS, KERAS_LOOP, RUN_FN, path_of
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.user_source.trainer_functions import functions_of

_HERE = "tfx_estimator.components.trainer"

# They choose the exported checkpoint, and end training.
_BEST = ("best.decision", "best.keeper")
# It changes the declaration before training.
_SETTLING = ("settling",)
_OF_ESTIMATOR = (
    *_BEST,
    "declared_input",
    "estimator.distribute",
    "estimator.evaluation",
    "estimator.keras_layers",
    "estimator.patches",
    "estimator.path",
    "estimator.training",
    "export",
    "seeds",
    "task.user_code",
    "user_input.rows",
    "user_input.shared_batches",
)
_OF_KERAS = (
    *_BEST,
    "declared_input",
    "export",
    "keras.drivers",
    "keras.evaluation",
    "keras.model",
    "keras.path",
    "keras.saving",
    "keras.watch",
    "seeds",
    "task.user_code",
)
_OF_RUN_FN = ("export", "run_fn", "seeds", "task.user_code")
# Modules of this folder, by path, without those that do not change a model: supervisor, cluster, reports and hooks.
# The fingerprint includes their imports from `model_fn` and `data`.
_OWN: dict[str, tuple[str, ...]] = {
    ESTIMATOR: _OF_ESTIMATOR,
    KERAS: _OF_KERAS,
    KERAS_LOOP: _OF_KERAS,
    RUN_FN: _OF_RUN_FN,
}
_BUILT_IN = ("estimator.first_call", "estimator.trainer_fn")


def deciding_code(path: str, built_in: bool = False) -> list[str]:
    """Returns this project's modules that decide a model, for `fingerprint_source`.

    Args:
        path: As `Settings.path`; empty is any.
    """
    # "Any" excludes the Keras paths, which a declaration always names.
    names: Sequence[str] = _OWN[path] if path else [*_OWN[ESTIMATOR], *_OWN[RUN_FN]]
    return _modules({*names, *(_BUILT_IN if built_in else ())})


def declared_code(section: TrainerSection) -> list[str]:
    """Returns the user's and this project's code that decides a declaration's model, for `fingerprint_source`."""
    if section.module_file is not None:
        trains = [section.module_file, *deciding_code(path_of(functions_of(section.module_file)))]
    else:
        trains = [section.target, *deciding_code(section.path, built_in=section.path == ESTIMATOR)]
    return [*trains, *_modules(_SETTLING)]


def _modules(names: Iterable[str]) -> list[str]:
    return [f"{_HERE}.{name}" for name in sorted(names)]
