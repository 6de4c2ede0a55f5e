"""Rules of the training step: precision, XLA, parts of a batch, sync_every, model and pipeline parallelism."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfx_estimator.pipeline.config.known import NORMALISING
from tfx_estimator.pipeline.config.rules.rule import STRATEGY, Case, Rule, conflict, given, needs, of_strategy, own_code
from tfx_estimator.pipeline.config.runtime import AUTO
from tfx_estimator.pipeline.config.strategies import ON_WORKERS

_PRECISION, _XLA, _SYNC = "trainer.precision", "trainer.xla", "trainer.sync_every"
_PARTS, _CONCURRENT = "trainer.gradient_accumulation", "trainer.parallel_parts"
_MODEL_PARALLEL, _PIPELINE_PARALLEL = "trainer.model_parallel", "trainer.pipeline_parallel"
_TRAIN = "trainer.distribution.train"
_BATCH = ("trainer.global_batch_size", STRATEGY, f"{_TRAIN}.workers")
_RAISE_BATCH = "lower it, or raise trainer.global_batch_size, which is the batch of an update"
_NORMALISES = "{trainer.model} normalises by batch statistics, which would be those of a part of the batch"


def _float16(case: Case) -> bool:
    return case.trainer.precision == "mixed_float16"


PRECISION = given(
    lambda case: case.trainer.precision != "float32",
    own_code(_PRECISION, "builds its network in its own precision", "set tf.keras.mixed_precision in your code"),
    conflict(
        _PRECISION,
        _SYNC,
        lambda case: _float16(case) and case.trainer.sync_every is not None,
        f"in float16 the loss is scaled: with {_SYNC} each worker would change the scale, and skip steps, by itself",
    ),
    conflict(
        _PRECISION,
        f"{_TRAIN}.variable_partitioner",
        lambda case: not _float16(case) and case.train.variable_partitioner and not case.user_code,
        "Keras casts each variable of a layer to 16 bits, and cannot cast a sharded variable",
    ),
    of_strategy(
        _PRECISION,
        lambda case: _float16(case) and case.train.asynchronous,
        "in float16 the loss is scaled, and each worker would change the scale during the others' steps",
        "choose mixed_bfloat16, or another strategy",
    ),
)


def _uncompiled(case: Case) -> str:
    """Returns why XLA cannot compile a step under the strategy; empty if it can."""
    if case.train.asynchronous:
        return "the weights are in other processes, where compiled code cannot read them"
    if case.train.traits.one_copy:
        return "the weights are on one device: code compiled for another cannot read them"
    return "on a TPU every step is compiled with XLA anyway" if case.train.traits.on_tpu else ""


def _divided(case: Case) -> str:
    return _MODEL_PARALLEL if case.trainer.model_parallel else _PIPELINE_PARALLEL if case.trainer.is_divided else ""


XLA = given(
    lambda case: case.trainer.xla,
    own_code(_XLA, "has a training step of its own", "wrap the step in tf.function(jit_compile=True) in your code"),
    conflict(_XLA, "{found}", _divided, "XLA compiles for one device, and {found} puts layers on several"),
    # For built-in networks; the dry run checks the user's own.
    conflict(
        _XLA,
        "trainer.params.synchronized",
        lambda case: (
            case.train.replicas > 1 and case.trainer.model in NORMALISING and case.trainer.params.get("synchronized")
        ),
        "{trainer.model} normalises by the global batch, and XLA compiles only what one replica computes alone",
    ),
    of_strategy(_XLA, _uncompiled, "{found}"),
)


def _concurrent(case: Case) -> int:
    """Returns the declared number of concurrent parts; 1 for `auto`, which falls back to 1 itself."""
    return 1 if case.trainer.parallel_parts == AUTO else int(case.trainer.parallel_parts)


def _too_many_parts(case: Case) -> Any:
    in_turn, at_once, batch = case.trainer.gradient_accumulation, _concurrent(case), case.batch
    if case.user_code or not batch or in_turn * at_once <= batch:
        return None
    key, most = (_PARTS, batch) if in_turn > batch else (_CONCURRENT, batch // in_turn)
    return {"key": key, "parts": in_turn * at_once, "most": most}


def _whole_steps(case: Case) -> Iterator[dict[str, str]]:
    """Yields options that compute a batch as a whole."""
    trainer = case.trainer
    if trainer.xla:
        yield {"key": _XLA, "why": "XLA compiles a step into one program, which runs its parts one after another"}
    if trainer.model_parallel is not None:
        yield {"key": _MODEL_PARALLEL, "why": "its layers are on several devices already"}
    if trainer.pipeline_parallel is not None:
        yield {"key": _PIPELINE_PARALLEL, "why": "its stages work at the same time"}


def _whole_batches(path: str, instead: str, when: Any) -> Rule:
    option = path.rpartition(".")[2]
    return own_code(path, f"computes its own gradients: {option} would have no effect", instead, when)


PARTS = (
    _whole_batches(_PARTS, "accumulate in your own step", lambda case: case.trainer.gradient_accumulation > 1),
    _whole_batches(_CONCURRENT, "cut the batch in your own step", lambda case: _concurrent(case) > 1),
    Rule(
        "{key}",
        _too_many_parts,
        "each replica has {batch} of the {trainer.global_batch_size} examples of a step, fewer than {parts} parts",
        _RAISE_BATCH,
        "at most {most}",
        (*_BATCH, _PARTS),
    ),
    *given(
        lambda case: _concurrent(case) > 1 and not case.user_code,
        conflict(_CONCURRENT, "{key}", _whole_steps, "there is {key} as well: {why}"),
        conflict(_CONCURRENT, "trainer.model", lambda case: case.trainer.model in NORMALISING, _NORMALISES),
    ),
)

SYNC = given(
    lambda case: case.trainer.sync_every is not None,
    Rule(
        _SYNC,
        lambda case: case.trainer.module_file is not None,
        "a module file's trainer_fn or run_fn runs its own steps, so weights cannot be averaged between them",
        "remove it, and average the weights in your own loop; or name a trainer.model, and trainer.path keras",
        depends=("trainer.module_file",),
    ),
    *given(
        lambda case: case.trainer.module_file is None,
        needs(
            _SYNC,
            STRATEGY,
            ON_WORKERS,
            lambda case: not case.train.is_collective,
            "it averages the weights of processes that train in step, and the strategy {train.strategy} has none",
        ),
        needs(
            _SYNC,
            "trainer.path",
            "keras",
            lambda case: case.trainer.path == "estimator",
            "an Estimator's session would save one process's weights between two averagings",
        ),
        conflict(
            f"{_TRAIN}.gradient_compression",
            _SYNC,
            lambda case: case.train.gradient_compression != "none",
            f"with {_SYNC} the workers exchange weights, in their own dtype, not gradients",
        ),
    ),
)


def _distributed(case: Case) -> Iterator[dict[str, str]]:
    for which, section in (("train", case.train), ("eval", case.distribution.eval)):
        if section.distributes:
            yield {"section": f"trainer.distribution.{which}", "strategy": section.strategy}


def _of_devices(path: str) -> tuple[Rule, ...]:
    """Returns the rules that model_parallel and pipeline_parallel share: whose step, strategies, and devices."""
    section = path.rpartition(".")[2]
    return given(
        lambda case: getattr(case.trainer, section) is not None,
        own_code(path, "builds its network itself, and places its layers", "use `with tf.device(…)` in your code"),
        Rule(
            path,
            _distributed,
            "each replica of {strategy} ({section}) is a whole network with its variables, on a device that the "
            "strategy chooses",
            "remove it, or {section}: the strategy one_device, in training and in evaluation",
            depends=("{section}.strategy",),
        ),
        Rule(
            f"{path}.devices",
            lambda case: [{"why": why} for why in getattr(case.trainer, section).wrong_devices()],
            "{why}",
            "write for example devices: [cpu:0, cpu:1]",
            "two or more, each once: cpu:0 to cpu:63, logical CPUs; or gpu:0 to gpu:63, as TensorFlow counts them",
        ),
    )


def _beyond(case: Case) -> Iterator[dict[str, str]]:
    section = case.trainer.model_parallel
    for name, index in section.layers.items():
        if index >= len(section.devices):
            yield {"name": name, "value": str(index), "count": str(len(section.devices))}


LAYERS = (
    *_of_devices(_MODEL_PARALLEL),
    *given(
        lambda case: case.trainer.model_parallel is not None,
        Rule(
            f"{_MODEL_PARALLEL}.layers.{{name}}",
            _beyond,
            "there are {count} devices, counted from 0",
            "lower it, or name more devices",
            depends=(f"{_MODEL_PARALLEL}.devices",),
        ),
        conflict(
            _MODEL_PARALLEL,
            _PIPELINE_PARALLEL,
            lambda case: case.trainer.pipeline_parallel is not None,
            f"{_PIPELINE_PARALLEL} puts the layers of each stage on its device as well",
        ),
    ),
    *_of_devices(_PIPELINE_PARALLEL),
    *given(
        lambda case: case.trainer.pipeline_parallel is not None,
        conflict(_PIPELINE_PARALLEL, "trainer.model", lambda case: case.trainer.model in NORMALISING, _NORMALISES),
        Rule(
            f"{_PIPELINE_PARALLEL}.stages",
            lambda case: [{"why": why, "value": ""} for why in case.trainer.pipeline_parallel.wrong_stages()],
            "{why}",
            "write for example [[conv1], [dense1]], or a number of stages",
        ),
        Rule(
            f"{_PIPELINE_PARALLEL}.microbatches",
            lambda case: case.trainer.pipeline_parallel.microbatches > case.trainer.global_batch_size,
            "a batch has only {trainer.global_batch_size} examples",
            "lower it, or raise trainer.global_batch_size",
            depends=("trainer.global_batch_size",),
        ),
        Rule(
            _PARTS,
            lambda case: case.trainer.gradient_accumulation > 1,
            f"with {_PIPELINE_PARALLEL} the parts of a batch are its microbatches, whose gradients are added up",
            f"remove it, and raise {_PIPELINE_PARALLEL}.microbatches",
            depends=(_PIPELINE_PARALLEL,),
        ),
    ),
)

STEP = (*PARTS, *PRECISION, *XLA, *SYNC, *LAYERS)
