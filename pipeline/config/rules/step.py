"""Rules of how a step is done: precision, XLA, parts of a batch, averaged weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfx_estimator.pipeline.config.builtin import NORMALISING
from tfx_estimator.pipeline.config.parts import AUTO
from tfx_estimator.pipeline.config.rules.case import Case
from tfx_estimator.pipeline.config.rules.rule import STRATEGY, Rule, conflict, given, of_strategy, own_code

PRECISION_KEY, XLA_KEY, SYNC_KEY = "trainer.precision", "trainer.xla", "trainer.sync_every"
PARTS_KEY, CONCURRENT_KEY = "trainer.gradient_accumulation", "trainer.parallel_parts"
MODEL_PARALLEL, PIPELINE_PARALLEL = "trainer.model_parallel", "trainer.pipeline_parallel"
_TRAIN = "trainer.distribution.train"
_BATCH = ("trainer.global_batch_size", STRATEGY, f"{_TRAIN}.workers")
_RAISE_BATCH = "lower it, or raise trainer.global_batch_size, which is the batch of an update"
# Networks of ours.
_MAX_POOLING = ("mnist_cnn", "cifar_cnn", "cifar_resnet9")


def _float16(case: Case) -> bool:
    return case.trainer.precision == "mixed_float16"


PRECISION = given(
    lambda case: case.trainer.precision != "float32",
    own_code(
        PRECISION_KEY,
        "makes its network by itself, in a precision of its own",
        unset="float32",
        instead="call tf.keras.mixed_precision.set_global_policy in your code",
    ),
    Rule(
        PRECISION_KEY,
        lambda case: _float16(case) and case.trainer.sync_every is not None,
        f"in float16 the loss is scaled, and with {SYNC_KEY} each worker would change the scale, and skip steps, by "
        "itself",
        f"mixed_bfloat16 or float32 with {SYNC_KEY}",
        f"choose one of them, or remove {SYNC_KEY}",
        (SYNC_KEY,),
    ),
    conflict(
        PRECISION_KEY,
        f"{_TRAIN}.variable_partitioner",
        lambda case: not _float16(case) and case.train.variable_partitioner and not case.own,
        "Keras casts each variable of a layer to 16 bits, and cannot cast one that a partitioner has cut",
    ),
    of_strategy(
        PRECISION_KEY,
        lambda case: _float16(case) and case.train.asynchronous,
        "in float16 the loss is scaled, and each worker would change the scale under the others' steps",
        "mixed_bfloat16 or float32 with {train.strategy}",
        "choose one of them, or another strategy",
    ),
    of_strategy(
        PRECISION_KEY,
        lambda case: _float16(case) and case.train.takes("tpu"),
        "a TPU has no float16",
        "mixed_bfloat16 or float32 on a TPU",
        "choose one of them, or another strategy",
    ),
)


def _uncompiled(case: Case) -> str:
    """Why XLA compiles no step under the strategy."""
    if case.train.asynchronous:
        return "the weights are in other processes, where what XLA compiles cannot read them"
    if case.train.traits.one_copy:
        return "the weights are on one device: what XLA compiles for another cannot read them"
    return "on a TPU every step is compiled with XLA anyway" if case.train.takes("tpu") else ""


def _divided(case: Case) -> str:
    if not case.trainer.is_divided:
        return ""
    return MODEL_PARALLEL if case.trainer.model_parallel else PIPELINE_PARALLEL


XLA = given(
    lambda case: case.trainer.xla,
    own_code(
        XLA_KEY,
        "has a training step of its own",
        unset="false",
        instead="wrap the step in tf.function(jit_compile=True) in your code",
    ),
    conflict(XLA_KEY, "{found}", _divided, "XLA compiles for one device, and {found} puts layers on several"),
    conflict(
        XLA_KEY,
        "trainer.deterministic",
        lambda case: case.trainer.deterministic and case.trainer.model in _MAX_POOLING,
        "XLA has no deterministic gradient of max-pooling, and {trainer.model} pools so",
    ),
    # Of built-in networks; the dry run checks the user's own.
    conflict(
        XLA_KEY,
        "trainer.params.synchronized",
        lambda case: (
            case.train.replicas > 1 and case.trainer.model in NORMALISING and case.trainer.params.get("synchronized")
        ),
        "{trainer.model} normalises by the batch of all replicas, and XLA compiles what one replica computes by itself",
    ),
    of_strategy(XLA_KEY, _uncompiled, "{found}", "false with {train.strategy}"),
)


def _concurrent(case: Case) -> int:
    """Parts at the same time, where they are counted: `auto` makes none where there can be none."""
    declared = case.trainer.parallel_parts
    return 1 if declared == AUTO else int(declared)


def _too_many_parts(case: Case) -> bool:
    parts = case.trainer.gradient_accumulation
    return parts > 1 and case.batch is not None and parts > case.batch and not case.own


def _too_many_at_once(case: Case) -> Any:
    parts, batch = case.trainer.gradient_accumulation, case.batch
    if _too_many_parts(case) or not batch or parts * _concurrent(case) <= batch:
        return None
    makes = f" and {PARTS_KEY} makes {parts} parts of them," if parts > 1 else ""
    return {"makes": makes, "most": batch // parts}


def _whole_steps(case: Case) -> Iterator[dict[str, str]]:
    """What computes a batch as a whole."""
    trainer = case.trainer
    if trainer.xla:
        yield {"key": XLA_KEY, "why": "XLA makes one program of a step, whose parts follow one another"}
    if trainer.model_parallel is not None:
        yield {"key": MODEL_PARALLEL, "why": "its layers are on several devices already"}
    if trainer.pipeline_parallel is not None:
        yield {"key": PIPELINE_PARALLEL, "why": "its stages work at the same time"}


PARTS = (
    own_code(
        PARTS_KEY,
        "computes its gradients itself: its batches would stay whole",
        unset="1",
        instead="accumulate in your own step",
        when=lambda case: case.trainer.gradient_accumulation > 1,
    ),
    own_code(
        CONCURRENT_KEY,
        "computes its gradients itself: its batches would stay whole",
        unset="1",
        instead="cut the batch in your own step",
        when=lambda case: _concurrent(case) > 1,
    ),
    Rule(
        PARTS_KEY,
        _too_many_parts,
        "each replica has {batch} of the {trainer.global_batch_size} examples of a step: "
        "{trainer.gradient_accumulation} parts are more than these",
        "at most {batch}",
        _RAISE_BATCH,
        _BATCH,
    ),
    *given(
        lambda case: _concurrent(case) > 1 and not case.own,
        Rule(
            CONCURRENT_KEY,
            _too_many_at_once,
            "each replica has {batch} of the {trainer.global_batch_size} examples of a step,{makes} too few for "
            "{trainer.parallel_parts} at the same time",
            "at most {most}",
            _RAISE_BATCH,
            (*_BATCH, PARTS_KEY),
        ),
        conflict(CONCURRENT_KEY, "{key}", _whole_steps, "there is {key} as well: {why}"),
        of_strategy(
            CONCURRENT_KEY, lambda case: case.train.takes("tpu"), "a TPU's host computes no step", "1 on a TPU"
        ),
        Rule(
            CONCURRENT_KEY,
            lambda case: case.trainer.model in NORMALISING,
            "{trainer.model} normalises by the statistics of a batch, which would be those of a part of it",
            "a network without batch normalisation",
            "remove it, or choose another network",
            ("trainer.model",),
        ),
    ),
)

SYNC = given(
    lambda case: case.trainer.sync_every is not None,
    Rule(
        SYNC_KEY,
        lambda case: case.trainer.module_file is not None,
        "a module file's trainer_fn or run_fn trains by itself: nobody averages its weights between two steps",
        "a trainer.model with a function that returns the network, and trainer.path keras",
        "remove it, and average the weights in your own loop",
        ("trainer.module_file",),
    ),
    *given(
        lambda case: case.trainer.module_file is None,
        of_strategy(
            SYNC_KEY,
            lambda case: not case.train.is_collective,
            "it averages the weights of processes that train in step, and the strategy {train.strategy} has none",
            "sync_every only with the strategy multi_worker_mirrored",
            f"remove it, or set {STRATEGY} to multi_worker_mirrored",
        ),
        Rule(
            SYNC_KEY,
            lambda case: case.trainer.path == "estimator",
            "an Estimator's session saves by itself, between two averagings, what one process has",
            "sync_every only with trainer.path keras or keras_custom_loop",
            "remove it, or set trainer.path to keras",
            ("trainer.path",),
        ),
        conflict(
            f"{_TRAIN}.gradient_compression",
            SYNC_KEY,
            lambda case: case.train.gradient_compression != "none",
            f"with {SYNC_KEY} no gradient is sent: weights are, in their own dtype",
        ),
    ),
)

STEP = (*PARTS, *PRECISION, *XLA, *SYNC)
