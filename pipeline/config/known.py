"""What the field knows and this version refuses, with the reason."""

from __future__ import annotations

_LATER = "not in this version yet"
_DASK = "loses data silently under this TFX: the component completes, the train split is never written"

_STRATEGIES = {
    "central_storage": _LATER,
    "multi_worker_mirrored": _LATER,
    "parameter_server": _LATER,
    "tpu": _LATER,
}

# Dotted path -> value -> why not.
VALUES: dict[str, dict[str, str]] = {
    "trainer.path": {"keras": _LATER, "keras_custom_loop": _LATER},
    "trainer.distribution.train.strategy": _STRATEGIES,
    "trainer.distribution.eval.strategy": _STRATEGIES,
    "trainer.distribution.train.cross_device_ops": {
        "nccl": f"{_LATER}: it needs GPUs of one kind",
        "auto": "TensorFlow's own choice hangs in an Estimator on CPU",
    },
    "evaluator.slices": {"image": "every image would be a slice of its own"},
    "beam.runner": {"dataflow": _LATER, "flink": _LATER, "spark": _LATER, "dask": _DASK},
}

# Dotted path -> why not.
KEYS: dict[str, str] = {
    "trainer.gradient_accumulation": _LATER,
    "trainer.precision": _LATER,
    "trainer.distribution.evaluator": _LATER,
    "trainer.distribution.max_restarts": _LATER,
    "trainer.distribution.train.workers": _LATER,
    "trainer.distribution.train.communication": _LATER,
    "trainer.distribution.train.parameter_servers": _LATER,
}

# What others call a key -> ours; by dotted path where the key alone could be anything.
ALIASES: dict[str, str] = {
    "data.name": "data.dataset",
    "data.path": "data.data_dir",
    "data.train": "data.splits.train",
    "data.eval": "data.splits.eval",
    "model_fn": "trainer.model",
    "trainer_fn": "trainer.module_file",
    "steps": "trainer.train_steps",
    "max_steps": "trainer.train_steps",
    "batch_size": "trainer.global_batch_size",
    "strategy": "trainer.distribution.train.strategy",
    "threshold": "evaluator.min_accuracy",
    "accuracy": "evaluator.min_accuracy",
    "push_destination": "pusher.destination",
}
