"""Rules of parameter servers, which are others on the Keras paths than in an Estimator."""

from __future__ import annotations

from tfx_estimator.pipeline.config.rules.case import Case
from tfx_estimator.pipeline.config.rules.rule import STRATEGY, Rule, given

_TRAIN = "trainer.distribution.train"
_PARTITIONER = f"{_TRAIN}.variable_partitioner"
_SIZES = ("min_bytes", "max_bytes", "fixed_shards")


def _sizes(case: Case) -> list[str]:
    section = case.train.variable_partitioner
    return [name for name in _SIZES if getattr(section, name) is not None]


def _wrong_sizes(case: Case) -> str:
    sizes = _sizes(case)
    if len(sizes) == 1:
        return ""
    return f"{' and '.join(sizes)} are given" if sizes else "none of its sizes is given"


def _limits_fixed(case: Case) -> bool:
    section = case.train.variable_partitioner
    return section is not None and section.max_shards is not None and _sizes(case) == ["fixed_shards"]


_CUT = given(
    lambda case: case.train.variable_partitioner is not None,
    Rule(
        _PARTITIONER,
        lambda case: case.trainer.path == "estimator",
        "an Estimator's parameter servers take whole variables: TensorFlow 1's strategy has no such option",
        "variable_partitioner only with trainer.path keras or keras_custom_loop",
        "remove it, or set trainer.path to keras",
        ("trainer.path",),
    ),
    Rule(
        "trainer.optimizer.name",
        lambda case: case.trainer.path != "estimator" and case.trainer.optimizer.name == "adafactor",
        "adafactor keeps means of a variable's rows and columns, and would keep others of each part of it",
        "another optimizer with a variable_partitioner",
        f"choose one, such as adam, or remove {_PARTITIONER}",
        (_PARTITIONER,),
    ),
    Rule(
        _PARTITIONER,
        _wrong_sizes,
        "{found}",
        f"exactly one of {', '.join(_SIZES)}",
        "write for example variable_partitioner: {{min_bytes: 262144}}",
    ),
    Rule(
        f"{_PARTITIONER}.max_shards",
        _limits_fixed,
        "fixed_shards says how many parts each variable has",
        "max_shards only with min_bytes or max_bytes",
        "remove one of the two",
    ),
)

PARAMETER_SERVERS = given(
    lambda case: case.train.asynchronous,
    *_CUT,
    *given(
        lambda case: case.trainer.path != "estimator" and case.trainer.module_file is None,
        Rule(
            f"{_TRAIN}.workers",
            lambda case: case.train.workers == 1,
            "on the path {trainer.path} the chief hands out the steps and does none: there would be no worker",
            "2 or more: the chief, and those that do the steps",
            "raise it, or set trainer.path to estimator, whose chief trains as well",
            ("trainer.path", STRATEGY),
        ),
        Rule(
            "trainer.distribution.sharding",
            lambda case: case.distribution.sharding == "file",
            "on the path {trainer.path} all workers of parameter_server run the same input, and tell their own "
            "examples by their number",
            "element",
            "remove it, or set trainer.path to estimator",
            ("trainer.path", STRATEGY),
        ),
    ),
)
