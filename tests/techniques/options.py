"""What a declaration can say about training beyond the bare minimum, once each, as it is tried with every other.

`tune` is none of them. It is no entry of `trainer` but a section beside it, which the Trainer never reads: the Tuner, a
component before it, starts whole trainings of what `trainer` says, with other values, by the same supervisor. Two steps
of a Trainer say nothing of it; `tests/components/tuner` and `tests/e2e/test_tune.py` train its trials.

Some options are others, and more: what a row says of `mirrored` and of `mirrored_packs` goes together, so that the
further one costs next to no rows.
"""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

# Entries of `trainer` that none of the paths does without.
BASE: dict[str, Any] = {"model": "mnist_cnn", "train_steps": 2, "global_batch_size": 32}


def _by(strategy: str, **options: Any) -> dict[str, Any]:
    """Says the strategy of training."""
    return {"distribution": {"train": {"strategy": strategy, **options}}}


_MIRRORED = functools.partial(_by, "mirrored", devices={"cpu": 2})
_WORKERS = functools.partial(_by, "multi_worker_mirrored")
_SERVED = functools.partial(_by, "parameter_server", ps=1)

# Entries of `trainer` by a short name; small enough that two steps on the digits pass through them.
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
    # The name decides on which rows it goes: by this one it needs the fewest.
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
    # `together` says where the weights are.
    "warm_start": {"warm_start": {"exclude": ["logits/*"]}},
}

PATHS = ("estimator", "keras", "keras_custom_loop")

# What an option says on one path, in place of the above.
ON_PATH: dict[tuple[str, str], dict[str, Any]] = {
    # As a second option it would take nine rows more; on each path one dtype is of workers, and the other of devices.
    ("keras", "compressed"): _WORKERS(gradient_compression="bf16"),
    ("keras", "mirrored_compressed"): _MIRRORED(gradient_compression="fp16"),
    # Here by the default, which packs nothing.
    ("keras", "mirrored_packs"): _MIRRORED(),
    # And oneDNN by the other word.
    ("keras_custom_loop", "threads"): {"threads": {"intra_op": 1, "inter_op": 4}, "onednn": True},
    # An Estimator's workers wait for nobody, and each ends the step that it is in: of one alone the number is exact.
    ("estimator", "parameter_server"): _SERVED(workers=1),
}

# Whose workers only train: what goes by evaluations needs an evaluator beside them.
CLUSTERS = ("multi_worker_mirrored", "parameter_server")

# Those that a row trains.
NETWORKS = sorted({BASE["model"], *(option["model"] for option in OPTIONS.values() if "model" in option)})


def together(path: str, names: tuple[str, ...], weights: Path) -> dict[str, Any] | None:
    """Puts options beside each other.

    Args:
        weights: A folder with a checkpoint of each of NETWORKS, by its name.

    Returns:
        Entries of `trainer`; None where two of the options say the same entry differently.
    """
    found: dict[str, Any] = {}
    for name in names:
        # Whole: what one pair says is no part of the next.
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
