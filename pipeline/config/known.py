"""Known names: built-in networks, aliases from other tools, and values and keys that this version refuses."""

from __future__ import annotations

from tfx_estimator.pipeline.config import deploy, strategies

# Dotted path in the declaration -> short name -> `package.module:function`.
SHORT_NAMES: dict[str, dict[str, str]] = {
    "trainer.model": {
        name: f"tfx_estimator.model_fn.networks:{name}"
        for name in ("mnist_cnn", "cifar_cnn", "cifar_resnet", "cifar_resnet9")
    },
    "transform.preprocessing_fn": {"standardize": "tfx_estimator.data.preprocessing:preprocessing_fn"},
}
# Built-in networks with batch normalisation. The user's own are checked once built.
NORMALISING = ("cifar_resnet", "cifar_resnet9")

_JOB_SERVER = (
    "it runs behind a job server: start {}'s, and write `beam: {{runner: portable, job_endpoint: localhost:8099, "
    "environment_type: LOOPBACK}}`, see docs/beam.md"
)
_WORKER_PROCESSES = (
    "this version starts no worker processes: use portable, with your own job server and worker pool, `beam: "
    "{runner: portable, job_endpoint: localhost:8099, environment_type: EXTERNAL, environment_config: "
    "localhost:50000}`, see docs/beam.md"
)
_DASK = "loses data silently under this TFX: the component completes, the train split is never written"

_TRAIN, _EVAL = "trainer.distribution.train", "trainer.distribution.eval"
_OPTIMIZER = "trainer.optimizer"
_ONE_PROCESS, _ON_CPU_OR_GPU = "evaluation runs in one process", "this version evaluates on CPU or GPU"
_HANGS = "TensorFlow's own choice hangs in an Estimator on CPU"
# Dotted path -> value -> why it is refused.
VALUES: dict[str, dict[str, str]] = {
    "trainer.path": {"custom_loop": "it is called keras_custom_loop here", "fit": "it is called keras here"},
    f"{_TRAIN}.strategy": {theirs: f"it is called {ours} here" for theirs, ours in strategies.ALIASES.items()},
    f"{_EVAL}.strategy": {
        name: _ON_CPU_OR_GPU if traits.on_tpu else f"only training runs in a cluster, {_ONE_PROCESS}"
        for name, traits in strategies.TRAITS.items()
        if traits.on_tpu or traits.is_cluster
    },
    f"{_TRAIN}.cross_device_ops": {"auto": _HANGS},
    f"{_EVAL}.cross_device_ops": {"auto": _HANGS},
    "beam.runner": {
        "flink": _JOB_SERVER.format("Flink"),
        "spark": _JOB_SERVER.format("Spark"),
        "prism": _JOB_SERVER.format("Prism"),
        "dask": _DASK,
        "multi_process": _WORKER_PROCESSES,
    },
}

# Dotted path -> values to measure, for a user who writes `auto`.
MEASURED: dict[str, str] = {"trainer.precision": "float32,mixed_bfloat16", "trainer.xla": "false,true"}

# Dotted path, or a key that means the same everywhere -> why it is refused.
KEYS: dict[str, str] = {
    # Keys of pods, in whichever section they are written.
    **dict.fromkeys(
        ("imagePullSecrets", "image_pull_secrets"),
        "set on the pods' service account: Kubernetes gives each pod the imagePullSecrets of its service "
        "account, which deploy.service_account names, see docs/deploy.md",
    ),
    **dict.fromkeys(
        ("affinity", "node_affinity", "nodeAffinity", "pod_affinity", "podAffinity"),
        "not in this version yet: choose nodes by node_selector and tolerations, under deploy.nodes",
    ),
}

# Names of keys in other tools -> ours; by dotted path if the key alone is ambiguous.
ALIASES: dict[str, str] = {
    "data.train": "data.splits.train",
    "data.eval": "data.splits.eval",
    "data.splits.validation": "data.splits.eval",
    "model_fn": "trainer.model",
    "trainer_fn": "trainer.module_file",
    "steps": "trainer.train_steps",
    "epochs": "trainer.train_epochs",
    "batch_size": "trainer.global_batch_size",
    "data_augmentation": "trainer.augment",
    "num_ps": f"{_TRAIN}.ps",
    "num_workers": f"{_TRAIN}.workers",
    f"{_EVAL}.num_gpus": f"{_EVAL}.devices.gpu",
    "num_gpus": f"{_TRAIN}.devices.gpu",
    "intra_op_parallelism_threads": "trainer.threads.intra_op",
    "inter_op_parallelism_threads": "trainer.threads.inter_op",
    "allow_growth": "trainer.gpu.memory_growth",
    "lr": f"{_OPTIMIZER}.learning_rate",
    "clipnorm": f"{_OPTIMIZER}.clip_norm",
    "global_clipnorm": f"{_OPTIMIZER}.global_clip_norm",
    "clipvalue": f"{_OPTIMIZER}.clip_value",
    "strategy": f"{_TRAIN}.strategy",
    "search_space": "tune.ranges",
    "num_trials": "tune.max_trials",
    "trainer.distribution.devices": f"{_TRAIN}.devices",
    **deploy.ALIASES,
}


def expand(path: str, name: str) -> str:
    """Returns the `package.module:function` of a built-in short name; any other name as it is."""
    return SHORT_NAMES[path].get(name, name)
