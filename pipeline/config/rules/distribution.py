"""Rules of `trainer.distribution`: what a strategy cannot do, and what becomes of batches, files and evaluations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Optional

from tfx_estimator.pipeline.config.distribution import Strategy
from tfx_estimator.pipeline.config.problems import nearest_multiples
from tfx_estimator.pipeline.config.rules.case import Case, misfit, others_start_it, shares
from tfx_estimator.pipeline.config.rules.rule import CODE, STRATEGY, Rule, given, of_strategy
from tfx_estimator.pipeline.config.section import Section
from tfx_estimator.pipeline.config.strategies import OPTIONS, taking
from tfx_estimator.pipeline.config.yaml_text import inline

_PATH = "trainer.distribution"
_TRAIN, _EVALUATOR, _WORKERS = f"{_PATH}.train", f"{_PATH}.evaluator", f"{_PATH}.train.workers"
# Of a training without an evaluator: what the evaluator does by itself asks for nothing.
_PACES = {"start_delay_secs": 0, "throttle_secs": 1}


def _of(which: str, batch: str) -> tuple[tuple[Rule, ...], Rule]:
    """The rules of one of the two strategies, and that of the batch that its replicas share."""
    path = f"{_PATH}.{which}"
    devices = (f"{path}.devices.cpu", f"{path}.devices.gpu")

    def of(find: Callable[[Strategy], Any]) -> Callable[[Case], Any]:
        return lambda case: find(getattr(case.distribution, which))

    def options(section: Strategy) -> Iterator[dict[str, str]]:
        for key in OPTIONS:
            field = section.__fields__.get(key)
            # A default may stand there: `show` writes every value.
            if field is not None and not section.takes(key) and getattr(section, key) != field.default:
                value = _written(getattr(section, key))
                yield {"key": key, "chosen": section.strategy, "names": " or ".join(taking(key)), "value": value}

    def unfit(section: Strategy) -> Optional[dict[str, str]]:
        found = misfit(section)
        return found and {name: text.format(path=path) for name, text in found.items()}

    def undivided(case: Case) -> Optional[dict[str, Any]]:
        section, examples = getattr(case.distribution, which), getattr(case.trainer, batch)
        workers, count = shares(section)
        if examples % (workers * count) == 0 or misfit(section) or (which == "train" and case.is_open):
            return None
        parts = [f"{number} {name}" for number, name in ((workers, "workers"), (count, "devices")) if number > 1]
        fit = nearest_multiples(examples, workers * count)
        return {"examples": examples, "parts": " x ".join(parts), "replicas": workers * count, "fit": fit}

    rules = (
        Rule(
            f"{path}.{{key}}",
            of(options),
            "the strategy {chosen} takes no {key}",
            "{key} only with the strategy {names}",
            f"remove it, or set {path}.strategy to {{names}}",
            (f"{path}.strategy",),
        ),
        Rule(
            f"{path}.num_packs",
            of(lambda each: each.takes("num_packs") and not _packs(each) and each.num_packs is not None),
            "reduction_to_one_device packs no gradients",
            "num_packs only with the cross_device_ops hierarchical_copy or nccl",
            f"remove it, or set {path}.cross_device_ops to hierarchical_copy",
            (f"{path}.cross_device_ops",),
        ),
        Rule(f"{path}.devices", of(unfit), "{why}", "{fit}", "{mend}", (f"{path}.strategy", *devices)),
        *(
            Rule(
                f"{path}.{key}",
                of(_lacks_gpus(key)),
                "nccl adds up gradients on GPUs, and no GPU is declared",
                f"{path}.devices: {{{{gpu: N}}}}, N of each process",
                f"declare the GPUs, or set {path}.{key} to {instead}",
                (f"{path}.strategy", *devices),
            )
            for key, instead in (("cross_device_ops", "reduction_to_one_device"), ("communication", "ring"))
        ),
        Rule(
            f"{path}.gradient_compression",
            of(lambda each: _on_nccl(each, "cross_device_ops") and _compressed(each) == "bf16"),
            "TensorFlow's NcclAllReduce adds up float16, float32 and float64, and no bfloat16",
            "fp16, or other cross_device_ops than nccl",
            f"set it to fp16, or {path}.cross_device_ops to hierarchical_copy",
            (f"{path}.cross_device_ops",),
        ),
    )
    shared = Rule(
        f"trainer.{batch}",
        undivided,
        f"{{examples}} examples do not divide evenly among {{parts}} ({path})",
        "a multiple of {replicas}",
        f"set it to {{fit}}, or change {path}",
        (f"{path}.strategy", f"{path}.workers", *devices),
    )
    return rules, shared


def _written(value: Any) -> str:
    """A value as it was declared: of a section, what is not null."""
    if isinstance(value, Section):
        value = {key: each for key, each in value.dict().items() if each is not None}
    return inline(value)


def _packs(section: Strategy) -> bool:
    return section.cross_device_ops != "reduction_to_one_device"


def _on_nccl(section: Strategy, key: str) -> bool:
    return section.takes(key) and getattr(section, key) == "nccl"


def _lacks_gpus(key: str) -> Callable[[Strategy], bool]:
    return lambda section: _on_nccl(section, key) and not section.devices.gpu and not misfit(section)


def _compressed(section: Strategy) -> str:
    return getattr(section, "gradient_compression", "none")


def _lists(case: Case) -> Iterator[dict[str, Any]]:
    """Lists of GPUs for one process, where several share this machine."""
    distribution, train = case.distribution, case.train
    if not train.is_cluster or others_start_it():
        return
    sharing = _count(train.worker_count, "worker") + (" and an evaluator" if distribution.evaluator else "")
    for which, section, several in (
        ("train", train, train.worker_count > 1),
        ("eval", distribution.eval, distribution.evaluator),
    ):
        if several and isinstance(section.devices.gpu, tuple):
            yield {"which": which, "sharing": sharing, "count": len(section.devices.gpu)}


def _idle_paces(case: Case) -> Iterator[dict[str, str]]:
    # A process that trains alone evaluates as well, at a pace.
    for key in _PACES if case.train.is_cluster else ("start_delay_secs",):
        if not case.distribution.evaluator and getattr(case.distribution, key) not in (None, _PACES[key]):
            yield {"key": key}


def _few_files(case: Case) -> Any:
    shards, workers = case.declaration.shards, case.train.worker_count
    if case.distribution.sharding != "file" or shards >= workers or case.is_open:
        return None
    return {"files": _count(shards, "file"), "value": str(shards)}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_OF_TRAIN, _TRAIN_BATCH = _of("train", "global_batch_size")
_OF_EVAL, _EVAL_BATCH = _of("eval", "eval_batch_size")

# What the section alone can tell.
STRATEGIES = (
    *_OF_TRAIN,
    *_OF_EVAL,
    Rule(
        f"{_TRAIN}.tpu",
        lambda case: case.train.takes("tpu") and not (case.train.tpu or "").strip(),
        "the strategy tpu needs to know which TPU",
        "its address, grpc://HOST:8470, or its name",
        f"set {_TRAIN}.tpu",
        (STRATEGY,),
    ),
    Rule(
        f"{_PATH}.{{which}}.devices.gpu",
        _lists,
        "a list names the GPUs of one process, and {sharing} share this machine: each needs its own",
        "how many GPUs each process gets, gpu: {count}; or a list, where TF_CONFIG describes the cluster",
        f"set {_PATH}.{{which}}.devices.gpu to {{count}}; CUDA_VISIBLE_DEVICES says which GPUs there are to share out",
        (f"{_PATH}.{{which}}.devices", STRATEGY, _WORKERS, _EVALUATOR),
    ),
    Rule(
        f"{_PATH}.{{key}}",
        _idle_paces,
        "it sets the pace of the evaluator task, and there is none",
        "{key} only with evaluator: true",
        f"remove it, or set {_EVALUATOR} to true",
        (_EVALUATOR,),
    ),
    of_strategy(
        _EVALUATOR,
        lambda case: case.distribution.evaluator and not case.train.is_cluster,
        "an evaluator stands beside a cluster; the strategy {train.strategy} has one process, which evaluates as well",
        "false, or the strategy multi_worker_mirrored or parameter_server",
        f"remove it, or change {STRATEGY}",
    ),
)

_COMPRESSION = Rule(
    f"{_TRAIN}.gradient_compression",
    lambda case: case.train.gradient_compression != "none",
    "it is for the built-in training step: what trains here adds up its gradients by itself",
    "none; or a network function as trainer.model",
    "remove it",
    CODE,
)
# What another input_fn, and another step, than the built-in ones make of the section.
OWN_INPUT = (
    Rule(
        f"{_PATH}.sharding",
        lambda case: case.distribution.sharding != "element",
        "it is for the built-in input_fn: the batches of another one are split, or it shards by `input_context`",
        "element",
        "remove it; to read files of its own, let the input_fn take `input_context`",
    ),
    _COMPRESSION,
)

DISTRIBUTION = (
    *STRATEGIES,
    of_strategy(
        "trainer.deterministic",
        lambda case: case.trainer.deterministic and case.train.asynchronous,
        "the workers of parameter_server update the weights each at its own pace: no two runs end with equal bits",
        "false, or a strategy whose replicas train in step",
        f"remove it, or set {STRATEGY} to multi_worker_mirrored",
    ),
    # A module file has batches, files and checkpoints of its own.
    *given(lambda case: case.trainer.module_file is not None, *OWN_INPUT),
    *given(
        lambda case: case.trainer.module_file is None,
        *given(lambda case: case.trainer.path == "estimator" and case.own, _COMPRESSION),
        _TRAIN_BATCH,
        _EVAL_BATCH,
        Rule(
            "data.shards",
            _few_files,
            f"{{files}} cannot be shared among {{train.worker_count}} workers ({_PATH}.sharding: file)",
            "at least {train.worker_count}, one file for each worker",
            f"raise it, or set {_PATH}.sharding to element",
            (f"{_PATH}.sharding", STRATEGY, _WORKERS),
        ),
    ),
)
