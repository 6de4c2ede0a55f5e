"""Known names: built-in networks, and aliases from other tools."""

from __future__ import annotations

# Dotted path in the declaration -> short name -> `package.module:function`.
SHORT_NAMES: dict[str, dict[str, str]] = {
    "trainer.model": {
        name: f"tfx_estimator.model_fn.networks:{name}"
        for name in ("mnist_cnn", "cifar_cnn", "cifar_resnet", "cifar_resnet9")
    },
    "transform.preprocessing_fn": {"standardize": "tfx_estimator.data.preprocessing:preprocessing_fn"},
}
# The same for tables, whose models are whole Estimator model_fns; on the Keras paths, `model_fn.table_networks`.
TABLE_NAMES: dict[str, dict[str, str]] = {
    "trainer.model": {name: f"tfx_estimator.model_fn.tables:{name}" for name in ("dnn", "linear", "wide_deep")},
    "transform.preprocessing_fn": {
        "by_schema": "tfx_estimator.data.table_preprocessing:preprocessing_fn",
        "raw": "tfx_estimator.data.table_preprocessing:raw",
    },
}
# Their `trainer.params`.
PARAMS_OF_TABLES = ("hidden_units", "embedding_size", "dropout", "batch_norm")
# Built-in networks with batch normalisation. The user's own are checked once built.
NORMALISING = ("cifar_resnet", "cifar_resnet9")

_TRAIN, _EVAL = "trainer.distribution.train", "trainer.distribution.eval"
_OPTIMIZER = "trainer.optimizer"

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
    "deploy.tfjob.train": "deploy.trainjob.train",
    "trainer.distribution.devices": f"{_TRAIN}.devices",
}


def expand(path: str, name: str) -> str:
    """Returns the `package.module:function` of a built-in short name; any other name as it is."""
    return {**names_of(path), **names_of(path, of_table=True)}.get(name, name)


def names_of(path: str, of_table: bool = False) -> dict[str, str]:
    """Returns the short names of a key, for images or for tables."""
    return (TABLE_NAMES if of_table else SHORT_NAMES).get(path, {})
