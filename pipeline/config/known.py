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

# What others call it -> our key.
ALIASES: dict[str, str] = {
    "data.name": "data.dataset",
    "data.path": "data.data_dir",
    "trainer.model_fn": "trainer.model",
    "trainer.steps": "trainer.train_steps",
    "trainer.max_steps": "trainer.train_steps",
    "trainer.batch_size": "trainer.global_batch_size",
    "trainer.learning_rate": "trainer.optimizer.learning_rate",
    "trainer.strategy": "trainer.distribution.train.strategy",
    "evaluator.threshold": "evaluator.min_accuracy",
    "evaluator.accuracy": "evaluator.min_accuracy",
}
