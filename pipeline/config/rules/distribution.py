"""Rules of `trainer.distribution`: strategies, devices, batches, files and the evaluator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Optional

from tfx_estimator.pipeline.config.distribution import Strategy
from tfx_estimator.pipeline.config.problems import nearest_multiples
from tfx_estimator.pipeline.config.rules.rule import (
    CODE,
    STRATEGY,
    Case,
    Rule,
    conflict,
    device_conflict,
    given,
    needs,
    of_strategy,
    shares,
)
from tfx_estimator.pipeline.config.section import Section
from tfx_estimator.pipeline.config.strategies import OPTIONS, TRAITS
from tfx_estimator.pipeline.config.yaml_text import inline

_PATH = "trainer.distribution"
_TRAIN, _EVALUATOR, _WORKERS = f"{_PATH}.train", f"{_PATH}.evaluator", f"{_PATH}.train.workers"
_PARTITIONER, _SHARDING = f"{_TRAIN}.variable_partitioner", f"{_PATH}.sharding"
_SIZES = ("min_bytes", "max_bytes", "fixed_shards")


def _of(which: str, batch: str) -> tuple[tuple[Rule, ...], Rule]:
    """Returns the rules of one of the two strategies, and that of its batch size."""
    path = f"{_PATH}.{which}"
    chosen = (f"{path}.strategy", f"{path}.devices")

    def of(find: Callable[[Strategy], Any]) -> Callable[[Case], Any]:
        return lambda case: find(getattr(case.distribution, which))

    def undivided(case: Case) -> Optional[dict[str, Any]]:
        section, examples = getattr(case.distribution, which), getattr(case.trainer, batch)
        workers, count = shares(section)
        if examples % (workers * count) == 0 or device_conflict(section) or (which == "train" and case.workers_unknown):
            return None
        parts = [f"{number} {name}" for number, name in ((workers, "workers"), (count, "devices")) if number > 1]
        fit = nearest_multiples(examples, workers * count)
        return {"examples": examples, "parts": " x ".join(parts), "replicas": workers * count, "fit": fit}

    rules = (
        Rule(
            f"{path}.{{key}}",
            of(_other_options),
            "the strategy {strategy} takes no {key}",
            f"remove it, or set {path}.strategy to {{names}}",
            depends=(f"{path}.strategy",),
        ),
        Rule(f"{path}.devices", of(lambda each: device_conflict(each, path)), "{why}", "{fix}", depends=chosen[:1]),
    )
    shared = Rule(
        f"trainer.{batch}",
        undivided,
        f"{{examples}} examples do not divide evenly among {{parts}} ({path})",
        f"set it to {{fit}}, or change {path}",
        "a multiple of {replicas}",
        (*chosen, f"{path}.workers"),
    )
    return rules, shared


def _other_options(section: Strategy) -> Iterator[dict[str, str]]:
    for key in OPTIONS:
        field = section.__fields__.get(key)
        # Defaults are fine: `show` writes every value.
        if field is not None and not section.takes(key) and (value := getattr(section, key)) != field.default:
            if isinstance(value, Section):
                value = {name: each for name, each in value.dict().items() if each is not None}
            names = " or ".join(name for name, traits in TRAITS.items() if key in traits.options)
            yield {"key": key, "strategy": section.strategy, "names": names, "value": inline(value)}


def _few_files(case: Case) -> Any:
    shards, workers = case.declaration.shards, case.train.worker_count
    if case.distribution.sharding != "file" or shards >= workers or case.workers_unknown:
        return None
    return {"files": f"{shards} file" if shards == 1 else f"{shards} files", "value": str(shards)}


_OF_TRAIN, _TRAIN_BATCH = _of("train", "global_batch_size")
_OF_EVAL, _EVAL_BATCH = _of("eval", "eval_batch_size")

# Rules that need only this section.
STRATEGIES = (
    *_OF_TRAIN,
    *_OF_EVAL,
    Rule(
        f"{_TRAIN}.tpu",
        lambda case: case.train.traits.on_tpu and not (case.train.tpu or "").strip(),
        "the strategy tpu needs to know which TPU",
        f"set {_TRAIN}.tpu",
        "its address, grpc://HOST:8470, or its name",
        (STRATEGY,),
    ),
    of_strategy(
        _EVALUATOR,
        lambda case: case.distribution.evaluator and not case.train.is_cluster,
        "an evaluator is a task of a cluster; the strategy {train.strategy} has one process, which evaluates as well",
    ),
)

_COMPRESSION = Rule(
    f"{_TRAIN}.gradient_compression",
    lambda case: case.train.gradient_compression != "none",
    "it is for the built-in training step; this code reduces its own gradients",
    "remove it; or name a network function as trainer.model",
    depends=CODE,
)
# Options that have no effect on the user's own input_fn and step.
OWN_INPUT = (
    Rule(
        _SHARDING,
        lambda case: case.distribution.sharding != "element",
        "it is for the built-in input_fn: the batches of another one are split, or it shards by `input_context`",
        "remove it; to shard by file, let the input_fn take `input_context`",
    ),
    _COMPRESSION,
)


def _sizes(case: Case) -> list[str]:
    return [name for name in _SIZES if getattr(case.train.variable_partitioner, name) is not None]


# The Keras paths use another ParameterServerStrategy than an Estimator.
_PARTITIONED = given(
    lambda case: case.train.variable_partitioner is not None,
    needs(
        _PARTITIONER,
        "trainer.path",
        "keras",
        lambda case: case.trainer.path == "estimator",
        "an Estimator's parameter servers hold whole variables: TensorFlow 1's strategy has no such option",
    ),
    conflict(
        "trainer.optimizer.name",
        _PARTITIONER,
        lambda case: case.trainer.path != "estimator" and case.trainer.optimizer.name == "adafactor",
        "adafactor keeps means of a variable's rows and columns, which would differ for its shards",
    ),
    Rule(
        _PARTITIONER,
        lambda case: len(_sizes(case)) != 1 and {"sizes": " and ".join(_sizes(case)) or "none of its sizes"},
        "{sizes} are given",
        "write for example variable_partitioner: {{min_bytes: 262144}}",
        f"exactly one of {', '.join(_SIZES)}",
    ),
)
PARAMETER_SERVERS = given(
    lambda case: case.train.asynchronous,
    *_PARTITIONED,
    *given(
        lambda case: case.trainer.path != "estimator" and case.trainer.module_file is None,
        Rule(
            _WORKERS,
            lambda case: case.train.workers == 1,
            "on the path {trainer.path} the chief hands out the steps and does none: there would be no worker",
            "raise it, or set trainer.path to estimator, whose chief trains as well",
            depends=("trainer.path", STRATEGY),
        ),
        needs(
            _SHARDING,
            "trainer.path",
            "estimator",
            lambda case: case.distribution.sharding == "file",
            "on the path {trainer.path} all workers of parameter_server run the same input, and select their "
            "examples by index",
        ),
    ),
)

DISTRIBUTION = (
    *STRATEGIES,
    *PARAMETER_SERVERS,
    of_strategy(
        "trainer.deterministic",
        lambda case: case.trainer.deterministic and case.train.asynchronous,
        "the workers of parameter_server update the weights each at its own pace: no two runs are bitwise equal",
    ),
    # A module file makes its own batches, and reads its own files.
    *given(lambda case: case.trainer.module_file is not None, *OWN_INPUT),
    *given(
        lambda case: case.trainer.module_file is None,
        *given(lambda case: case.trainer.path == "estimator" and case.user_code, _COMPRESSION),
        _TRAIN_BATCH,
        _EVAL_BATCH,
        Rule(
            "data.shards",
            _few_files,
            f"{{files}} cannot be shared among {{train.worker_count}} workers ({_SHARDING}: file)",
            f"raise it, or set {_SHARDING} to element",
            "at least {train.worker_count}, one file for each worker",
            (_SHARDING, STRATEGY, _WORKERS),
        ),
    ),
)
