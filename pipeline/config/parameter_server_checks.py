"""Checks of parameter servers, which are others on the Keras paths than in an Estimator."""

from __future__ import annotations

from collections.abc import Iterator

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import Problem

_TRAIN = "trainer.distribution.train"
_SIZES = ("min_bytes", "max_bytes", "fixed_shards")


def check_parameter_servers(declaration: Declaration) -> Iterator[Problem]:
    """Checks what depends on `trainer.path`.

    Args:
        declaration: Typed values.

    Yields:
        The problems.
    """
    trainer, train = declaration.trainer, declaration.trainer.distribution.train
    if not train.asynchronous:
        return
    if train.variable_partitioner is not None:
        yield from _partitioner(declaration)
    if trainer.path == "estimator" or trainer.module_file is not None:
        return
    if train.workers == 1:
        yield Problem(
            f"{_TRAIN}.workers",
            f"on the path {trainer.path} the chief hands out the steps and does none: there would be no worker",
            "2 or more: the chief, and those that do the steps",
            "raise it, or set trainer.path to estimator, whose chief trains as well",
            value="1",
            depends=("trainer.path", f"{_TRAIN}.strategy"),
        )
    if trainer.distribution.sharding == "file":
        yield Problem(
            "trainer.distribution.sharding",
            f"on the path {trainer.path} all workers of parameter_server run the same input, and tell their own "
            "examples by their number",
            "element",
            "remove it, or set trainer.path to estimator",
            value="file",
            depends=("trainer.path", f"{_TRAIN}.strategy"),
        )


def _partitioner(declaration: Declaration) -> Iterator[Problem]:
    path, section = f"{_TRAIN}.variable_partitioner", declaration.trainer.distribution.train.variable_partitioner
    if declaration.trainer.path == "estimator":
        yield Problem(
            path,
            "an Estimator's parameter servers take whole variables: TensorFlow 1's strategy has no such option",
            "variable_partitioner only with trainer.path keras or keras_custom_loop",
            "remove it, or set trainer.path to keras",
            depends=("trainer.path",),
        )
    given = [name for name in _SIZES if getattr(section, name) is not None]
    if len(given) != 1:
        yield Problem(
            path,
            f"{' and '.join(given)} are given" if given else "none of its sizes is given",
            f"exactly one of {', '.join(_SIZES)}",
            "write for example variable_partitioner: {min_bytes: 262144}",
        )
    elif given == ["fixed_shards"] and section is not None and section.max_shards is not None:
        yield Problem(
            f"{path}.max_shards",
            "fixed_shards says how many parts each variable has",
            "max_shards only with min_bytes or max_bytes",
            "remove one of the two",
            value=str(section.max_shards),
        )
