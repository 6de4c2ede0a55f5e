"""Our side: the same parts that a pipeline run uses."""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING, Any, Optional

from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.trainer import TrainerSection

if TYPE_CHECKING:
    from tfx.components.trainer.fn_args_utils import FnArgs

    from tfx_estimator.components.trainer.declared_input import DeclaredInput


def declaration(
    name: str,
    data_dir: Optional[str],
    batch_size: int,
    steps: int,
    optimizer: dict,
    dataset: str = "mnist",
    **trainer: Any,
) -> Declaration:
    """Declares a data set with the network of the peers."""
    return Declaration.parse_obj(
        {
            "name": name,
            "data": {"dataset": dataset, "data_dir": data_dir},
            "trainer": {
                "model": "mnist_cnn",
                "train_steps": steps,
                "global_batch_size": batch_size,
                "save_checkpoints_steps": steps,
                "optimizer": optimizer,
                **trainer,
            },
            "evaluator": {"min_accuracy": 0.8},
        }
    )


def prepare(workdir: str, data_dir: Optional[str], dataset: str = "mnist") -> dict[str, Any]:
    """Runs a pipeline up to Transform; existing outputs come from TFX's cache."""
    from tfx.orchestration.local.local_dag_runner import LocalDagRunner
    from tfx.orchestration.pipeline import RunOptions

    from tfx_estimator.pipeline.build import create_pipeline
    from tfx_estimator.pipeline.folders import PipelineFolders

    name = "bench-input" if dataset == "mnist" else f"bench-input-{dataset}"
    declared = declaration(name, data_dir, 64, 1000, {}, dataset)
    folders = PipelineFolders(workdir, declared.name)
    os.makedirs(folders.home, exist_ok=True)
    LocalDagRunner().run(create_pipeline(declared, folders), run_options=RunOptions(to_nodes=["Transform"]))
    return {
        "examples": _newest(os.path.join(folders.root, "TfdsExampleGen", "examples")),
        "transform": _newest(os.path.join(folders.root, "Transform", "transform_graph")),
    }


def trainer_spec(
    prepared: dict[str, Any], model_dir: str, batch_size: int, steps: int, declared: Optional[Declaration] = None
) -> dict[str, Any]:
    from tfx_estimator.components.trainer.estimator.trainer_fn import trainer_fn
    from tfx_estimator.components.trainer.settings import SETTINGS_KEY, Settings

    optimizer = {"name": "sgd", "learning_rate": 1e-4, "schedule": "constant"}
    declared = declared or declaration("bench-training", None, batch_size, steps, optimizer)
    settings = Settings(
        declaration=declared.dict(),
        image_shape=(32, 32, 3) if declared.data.dataset == "cifar10" else (28, 28, 1),
        label_names=tuple(str(digit) for digit in range(10)),
    )
    fn_args = _fn_args(prepared, model_dir, steps, {SETTINGS_KEY: settings})
    return trainer_fn(fn_args, None)


def first_batch(input_fn: Any) -> Any:
    """Reads a training batch, to be kept in memory."""
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        iterator = tf.compat.v1.data.make_initializable_iterator(input_fn(mode=tf.estimator.ModeKeys.TRAIN))
        session.run([iterator.initializer, tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS)])
        return session.run(iterator.get_next())


def train(spec: dict[str, Any], constant: bool, hooks: list[Any]) -> None:
    """Trains the Estimator of a trainer_fn, with `constant` on one batch in memory."""
    import tensorflow as tf

    input_fn = spec["train_spec"].input_fn
    batch = first_batch(input_fn) if constant else None
    constantly = lambda: tf.data.Dataset.from_tensors(batch).repeat()  # noqa: E731
    spec["estimator"].train(constantly if constant else input_fn, hooks=hooks)


def keras_input(prepared: dict[str, Any], model_dir: str, section: TrainerSection) -> DeclaredInput:
    from tfx_estimator.components.trainer.declared_input import declared_input

    return declared_input(_fn_args(prepared, model_dir, section.train_steps, {}), section, lambda: 0)


def _fn_args(prepared: dict[str, Any], model_dir: str, steps: Optional[int], custom_config: dict[str, Any]) -> FnArgs:
    from tfx.components.trainer.fn_args_utils import FnArgs

    return FnArgs(
        train_files=[os.path.join(prepared["examples"], "Split-train", "*")],
        eval_files=[os.path.join(prepared["examples"], "Split-eval", "*")],
        transform_output=prepared["transform"],
        model_run_dir=model_dir,
        train_steps=steps,
        eval_steps=0,
        custom_config=custom_config,
    )


def _newest(folder: str) -> str:
    return max(glob.glob(os.path.join(folder, "*")), key=lambda path: int(os.path.basename(path)))
