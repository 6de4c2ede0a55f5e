"""The options of training, each of which is tried with every other.

`tune` is not among them. It is no entry of `trainer` but another section, which the Trainer never reads: the Tuner, a
component before it, starts whole trainings of `trainer` with other values, by the same supervisor. Two steps of a
Trainer do not test it; `tests/components/tuner` and `tests/e2e/test_tune.py` train its trials.

Some options contain others: a row can have both `mirrored` and `mirrored_packs`, so that the latter needs almost no
further rows.
"""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

# Entries of `trainer` that every path needs.
BASE: dict[str, Any] = {"model": "mnist_cnn", "train_steps": 2, "global_batch_size": 32}


def _by(strategy: str, **options: Any) -> dict[str, Any]:
    """Returns the entry of a training strategy."""
    return {"distribution": {"train": {"strategy": strategy, **options}}}


_MIRRORED = functools.partial(_by, "mirrored", devices={"cpu": 2})
_WORKERS = functools.partial(_by, "multi_worker_mirrored")
_SERVED = functools.partial(_by, "parameter_server", ps=1)

# Entries of `trainer` by a short name; small enough to have effects in two steps on the digits.
OPTIONS: dict[str, dict[str, Any]] = {
    "mirrored": _MIRRORED(),
    "mirrored_packs": _MIRRORED(cross_device_ops="hierarchical_copy", num_packs=2),
    "mirrored_compressed": _MIRRORED(gradient_compression="bf16"),
    "central_storage": _by("central_storage", devices={"cpu": 2}),
    "workers": _WORKERS(workers=2),
    "parameter_server": _SERVED(workers=2),
    "partitioned": _SERVED(workers=2, variable_partitioner={"fixed_shards": 2}),
    "compressed": _WORKERS(gradient_compression="fp16"),
    "packs": _WORKERS(communication="ring", bytes_per_pack=16_384),
    "sync_every": {"sync_every": 2, **_WORKERS(workers=2)},
    "outer_momentum": {"sync_every": {"steps": 2, "outer_momentum": 0.5}, **_WORKERS(workers=2)},
    "by_file": {"distribution": {"sharding": "file"}},
    "augment": {"augment": ["random_flip", {"random_crop": {"padding": 2}}]},
    "batch_norm": {"model": "cifar_resnet9"},
    "adam": {"optimizer": {"name": "adam", "learning_rate": 0.001}},
    "weight_decay": {"optimizer": {"weight_decay": 0.001}},
    "clipping": {"optimizer": {"clip_norm": 1.0}},
    "warmup": {"optimizer": {"warmup_steps": 1}},
    "scaling": {"optimizer": {"scaling": "linear"}},
    "scaling_sqrt": {"optimizer": {"scaling": "sqrt"}},
    "epochs": {"train_steps": None, "train_epochs": 0.04},
    "spinning": {"threads": {"spinning": True}},
    "threads": {"threads": {"intra_op": 1, "inter_op": 4}, "onednn": False},
    "gpu": {"gpu": {"memory_limit_mb": 2048, "allocator": "cuda_malloc_async", "thread_mode": "gpu_private"}},
    "gradient_accumulation": {"gradient_accumulation": 4},
    # Names decide on the rows of options: with this name it needs the fewest.
    "accumulation_parallel": {"gradient_accumulation": 4, "parallel_parts": 2},
    "model_parallel": {"model_parallel": {"devices": ["cpu:0", "cpu:1"], "layers": {"logits": 1}}},
    "pipeline_parallel": {"pipeline_parallel": {"stages": 2, "microbatches": 2}},
    "label_smoothing": {"label_smoothing": 0.1},
    "class_weights": {"class_weights": {"3": 2.0}},
    "keep_best": {"keep_best": "accuracy", "save_checkpoints_steps": 1},
    "early_stopping": {"early_stopping": "average_loss", "save_checkpoints_steps": 1},
    "profile": {"profile": {"start_step": 1, "steps": 1}},
    "mixed_bfloat16": {"precision": "mixed_bfloat16"},
    "mixed_float16": {"precision": "mixed_float16"},
    "xla": {"xla": True},
    "deterministic": {"deterministic": True},
    "streamed": {"resident_megabytes": 0},
    "single_steps": {"steps_per_execution": 1},
    # `together` adds the folder of the weights.
    "warm_start": {"warm_start": {"exclude": ["logits/*"]}},
}

PATHS = ("estimator", "keras", "keras_custom_loop")

# Options with another value on one path.
ON_PATH: dict[tuple[str, str], dict[str, Any]] = {
    # A second option would need nine more rows; on each path workers use one dtype, and devices the other.
    ("keras", "compressed"): _WORKERS(gradient_compression="bf16"),
    ("keras", "mirrored_compressed"): _MIRRORED(gradient_compression="fp16"),
    # Here with the default, without packs.
    ("keras", "mirrored_packs"): _MIRRORED(),
    # And oneDNN with the other value.
    ("keras_custom_loop", "threads"): {"threads": {"intra_op": 1, "inter_op": 4}, "onednn": True},
    # An Estimator's workers are asynchronous, and each completes its step: only with one worker the last step is exact.
    ("estimator", "parameter_server"): _SERVED(workers=1),
}

# Clusters whose workers only train: options that depend on evaluations need an evaluator.
CLUSTERS = ("multi_worker_mirrored", "parameter_server")

# Networks that a row trains.
NETWORKS = sorted({BASE["model"], *(option["model"] for option in OPTIONS.values() if "model" in option)})


def together(path: str, names: tuple[str, ...], weights: Path) -> dict[str, Any] | None:
    """Merges options.

    Args:
        weights: A folder with a checkpoint of each of NETWORKS, by its name.

    Returns:
        Entries of `trainer`; None if two of the options have different values for an entry.
    """
    found: dict[str, Any] = {}
    for name in names:
        # A deep copy: rows share no values.
        if not _merge(found, copy.deepcopy(ON_PATH.get((path, name), OPTIONS[name]))):
            return None
    values = {**BASE, **found, "path": path}
    train = values.get("distribution", {}).get("train", {})
    if train.get("strategy") in CLUSTERS and any(name in values for name in ("keep_best", "early_stopping")):
        values["distribution"]["evaluator"] = True
    if "warm_start" in values:
        values["warm_start"]["checkpoint"] = str(weights / values["model"])
    return values


def _merge(into: dict[str, Any], values: dict[str, Any]) -> bool:
    for key, value in values.items():
        if key not in into:
            into[key] = dict(value) if isinstance(value, dict) else value
        elif isinstance(value, dict) and isinstance(into[key], dict):
            if not _merge(into[key], value):
                return False
        elif into[key] != value:
            return False
    return True
