"""The source code that decides what a Trainer trains and exports: its part of the cache key, and no other code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tfx_estimator.components.trainer.settings import ESTIMATOR, KERAS, KERAS_LOOP, RUN_FN, path_of
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.user_source.trainer_functions import functions_of

_HERE = "tfx_estimator.components.trainer"

# Which checkpoint is exported, and when training is over.
_BEST = ("best.decision", "best.keeper")
# What puts into a declaration, before training begins, what is known only then.
_SETTLING = ("settling",)
_OF_ESTIMATOR = (
    *_BEST,
    "declared_input",
    "estimator.distribute",
    "estimator.evaluation",
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
# Of this folder, by path. Left out are the supervisor, the cluster, reports and hooks: how training is watched changes
# no model. What these import from `model_fn` and `data` belongs to them.
_OWN: dict[str, tuple[str, ...]] = {
    ESTIMATOR: _OF_ESTIMATOR,
    KERAS: _OF_KERAS,
    KERAS_LOOP: _OF_KERAS,
    RUN_FN: _OF_RUN_FN,
}
_BUILT_IN = ("estimator.first_call", "estimator.trainer_fn")


def deciding_code(path: str, built_in: bool = False) -> list[str]:
    """Returns this project's own modules that decide a model; `fingerprint_source` takes them beside the user's.

    Args:
        path: As `Settings.path`; empty is any.
    """
    # The Keras paths are those of a declaration, which always names its own.
    names: Sequence[str] = _OWN[path] if path else [*_OWN[ESTIMATOR], *_OWN[RUN_FN]]
    return _modules({*names, *(_BUILT_IN if built_in else ())})


def declared_code(section: TrainerSection) -> list[str]:
    """Returns all that decides the model of a declaration, as `fingerprint_source` takes it."""
    if section.module_file is not None:
        trains = [section.module_file, *deciding_code(path_of(functions_of(section.module_file)))]
    else:
        trains = [section.target, *deciding_code(section.path, built_in=section.path == ESTIMATOR)]
    return [*trains, *_modules(_SETTLING)]


def _modules(names: Iterable[str]) -> list[str]:
    return [f"{_HERE}.{name}" for name in sorted(names)]
