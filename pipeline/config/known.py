"""What the field knows and this version refuses, with the reason."""

from __future__ import annotations

from tfx_estimator.pipeline.config import deploy

_LATER = "not in this version yet"
_JOB_SERVER = (
    "it is run by a job server: start {}'s, and write `beam: {{runner: portable, job_endpoint: localhost:8099, "
    "environment_type: LOOPBACK}}`, see docs/beam.md"
)
WORKER_PROCESSES = (
    "no worker processes are started here: take portable, with a job server and a worker pool of yours, `beam: "
    "{runner: portable, job_endpoint: localhost:8099, environment_type: EXTERNAL, environment_config: "
    "localhost:50000}`, see docs/beam.md"
)
_DASK = "loses data silently under this TFX: the component completes, the train split is never written"

_TRAIN, _EVAL = "trainer.distribution.train", "trainer.distribution.eval"
_OPTIMIZER = "trainer.optimizer"
_ONE_PROCESS = "evaluation runs in one process"
_HANGS = "TensorFlow's own choice hangs in an Estimator on CPU"
_LAYOUT = (
    "of weights split among devices, which is not done here: put whole layers on named devices, by devices and layers, "
    "or cut the network into stages, by trainer.pipeline_parallel"
)

# Dotted path -> value -> why not.
VALUES: dict[str, dict[str, str]] = {
    "trainer.path": {"custom_loop": "it is called keras_custom_loop here", "fit": "it is called keras here"},
    f"{_TRAIN}.strategy": {
        "none": "it is called one_device here",
        "collective_all_reduce": "it is called multi_worker_mirrored here",
    },
    f"{_EVAL}.strategy": {
        "multi_worker_mirrored": f"only training runs in a cluster, {_ONE_PROCESS}",
        "parameter_server": f"only training runs in a cluster, {_ONE_PROCESS}",
        "tpu": "this version evaluates on CPU or GPU",
    },
    f"{_TRAIN}.cross_device_ops": {"auto": _HANGS},
    f"{_EVAL}.cross_device_ops": {"auto": _HANGS},
    "beam.runner": {
        "flink": _JOB_SERVER.format("Flink"),
        "spark": _JOB_SERVER.format("Spark"),
        "prism": _JOB_SERVER.format("Prism"),
        "dask": _DASK,
        "multi_process": WORKER_PROCESSES,
    },
}

# Dotted path -> the values to measure where somebody writes `auto`.
MEASURED: dict[str, str] = {"trainer.precision": "float32,mixed_bfloat16", "trainer.xla": "false,true"}

# Dotted path, or the key alone if it means one thing everywhere -> why not.
KEYS: dict[str, str] = {
    **dict.fromkeys((f"trainer.model_parallel.{key}" for key in ("mesh", "layout")), _LAYOUT),
    **dict.fromkeys((f"{_OPTIMIZER}.{key}" for key in ("use_ema", "ema_momentum", "ema_overwrite_frequency")), _LATER),
    f"{_OPTIMIZER}.relative_step": "of no effect in Keras 2: adafactor takes the smaller of the learning rate and "
    "1/sqrt(step) either way",
    **{
        f"{_EVAL}.{key}": f"of training only: {_ONE_PROCESS}"
        for key in (
            "workers",
            "ps",
            "variable_partitioner",
            "communication",
            "bytes_per_pack",
            "gradient_compression",
            "timeout_seconds",
        )
    },
    f"{_EVAL}.tpu": "of training only: this version evaluates on CPU or GPU",
    # Keys of pods, in whichever section they are written.
    **dict.fromkeys(
        ("imagePullSecrets", "image_pull_secrets"),
        "of the account that the pods run as: Kubernetes gives each of its pods the imagePullSecrets of its service "
        "account, which deploy.service_account names, see docs/deploy.md",
    ),
    **dict.fromkeys(
        ("affinity", "node_affinity", "nodeAffinity", "pod_affinity", "podAffinity"),
        f"{_LATER}: node_selector and tolerations, under deploy.nodes, say which nodes are meant",
    ),
}

# Names of keys in other tools -> ours; by dotted path if the key alone is ambiguous.
ALIASES: dict[str, str] = {
    "data.name": "data.dataset",
    "data.path": "data.data_dir",
    "data.train": "data.splits.train",
    "data.eval": "data.splits.eval",
    "data.test": "data.splits.test",
    "data.splits.validation": "data.splits.eval",
    "model_fn": "trainer.model",
    "trainer_fn": "trainer.module_file",
    "steps": "trainer.train_steps",
    "max_steps": "trainer.train_steps",
    "epochs": "trainer.train_epochs",
    "num_epochs": "trainer.train_epochs",
    "batch_size": "trainer.global_batch_size",
    "augmentation": "trainer.augment",
    "augmentations": "trainer.augment",
    "data_augmentation": "trainer.augment",
    "random_erasing": "cutout",
    "random_horizontal_flip": "random_flip",
    "parameter_servers": f"{_TRAIN}.ps",
    "num_ps": f"{_TRAIN}.ps",
    # TensorFlow's partitioners have min_shard_bytes, max_shard_bytes and num_shards.
    **{
        f"{_TRAIN}.variable_partitioner.{theirs}": f"{_TRAIN}.variable_partitioner.{ours}"
        for theirs, ours in {
            "min_size": "min_bytes",
            "min_shard_bytes": "min_bytes",
            "max_size": "max_bytes",
            "max_shard_bytes": "max_bytes",
            "num_shards": "fixed_shards",
        }.items()
    },
    "num_workers": f"{_TRAIN}.workers",
    f"{_EVAL}.num_gpus": f"{_EVAL}.devices.gpu",
    "num_gpus": f"{_TRAIN}.devices.gpu",
    "intra_op_parallelism_threads": "trainer.threads.intra_op",
    "inter_op_parallelism_threads": "trainer.threads.inter_op",
    "allow_growth": "trainer.gpu.memory_growth",
    "lr": f"{_OPTIMIZER}.learning_rate",
    "lr_scaling": f"{_OPTIMIZER}.scaling",
    "clipnorm": f"{_OPTIMIZER}.clip_norm",
    "global_clipnorm": f"{_OPTIMIZER}.global_clip_norm",
    "clipvalue": f"{_OPTIMIZER}.clip_value",
    "restarts": "trainer.distribution.max_restarts",
    "strategy": f"{_TRAIN}.strategy",
    "tuner": "tune",
    "tune.objective.goal": "tune.objective.mode",
    "tune.objective.direction": "tune.objective.mode",
    "search_space": "tune.ranges",
    "num_trials": "tune.max_trials",
    "num_parallel_trials": "tune.parallel_trials",
    "trainer.distribution.devices": f"{_TRAIN}.devices",
    "options": "beam.options",
    **deploy.ALIASES,
    "threshold": "evaluator.min_accuracy",
    "accuracy": "evaluator.min_accuracy",
    "push_destination": "pusher.destination",
}
