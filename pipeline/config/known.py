"""What the field knows and this version refuses, with the reason."""

from __future__ import annotations

_LATER = "not in this version yet"
_DASK = "loses data silently under this TFX: the component completes, the train split is never written"

_ONE_PROCESS = "only training runs in a cluster: TensorFlow evaluates in one process, the evaluator or the chief"

_EVAL_STRATEGIES = {
    "multi_worker_mirrored": _ONE_PROCESS,
    "parameter_server": _ONE_PROCESS,
    "tpu": "this version evaluates on CPU or GPU",
}

# Dotted path -> value -> why not.
VALUES: dict[str, dict[str, str]] = {
    "trainer.path": {"keras": _LATER, "keras_custom_loop": _LATER},
    "trainer.distribution.eval.strategy": _EVAL_STRATEGIES,
    "trainer.distribution.train.cross_device_ops": {"auto": "TensorFlow's own choice hangs in an Estimator on CPU"},
    "trainer.distribution.eval.cross_device_ops": {"auto": "TensorFlow's own choice hangs in an Estimator on CPU"},
    "evaluator.slices": {"image": "every image would be a slice of its own"},
    "beam.runner": {"dataflow": _LATER, "flink": _LATER, "spark": _LATER, "dask": _DASK},
}

# Dotted path -> why not.
KEYS: dict[str, str] = {
    "trainer.gradient_accumulation": _LATER,
    "trainer.precision": _LATER,
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
    "parameter_servers": "trainer.distribution.train.ps",
    "num_workers": "trainer.distribution.train.workers",
    "restarts": "trainer.distribution.max_restarts",
    "strategy": "trainer.distribution.train.strategy",
    "threshold": "evaluator.min_accuracy",
    "accuracy": "evaluator.min_accuracy",
    "push_destination": "pusher.destination",
}
