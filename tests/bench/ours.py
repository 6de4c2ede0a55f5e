"""Our side: the same parts that a pipeline run uses."""

from __future__ import annotations

import glob
import os
from typing import Any, Optional

from tfx_estimator.pipeline.config import Declaration


def declaration(name: str, data_dir: Optional[str], batch_size: int, steps: int, optimizer: dict) -> Declaration:
    """Declares MNIST with the network of the peers.

    Args:
        name: The pipeline's.
        data_dir: TFDS data_dir; None is TFDS's own default.
        batch_size: Examples.
        steps: Of training; a checkpoint comes at the end only, as with the peers.
        optimizer: The section.

    Returns:
        The declaration.
    """
    return Declaration.parse_obj(
        {
            "name": name,
            "data": {"dataset": "mnist", "data_dir": data_dir},
            "trainer": {
                "model": "mnist_cnn",
                "train_steps": steps,
                "global_batch_size": batch_size,
                "save_checkpoints_steps": steps,
                "optimizer": optimizer,
            },
            "evaluator": {"min_accuracy": 0.8},
        }
    )


def prepare(workdir: str, data_dir: Optional[str]) -> dict[str, Any]:
    """Runs a pipeline up to Transform; what is there already comes from TFX's cache.

    Args:
        workdir: Folder of the run.
        data_dir: TFDS data_dir.

    Returns:
        `examples` and `transform`: folders of the artifacts.
    """
    from tfx.orchestration.local.local_dag_runner import LocalDagRunner
    from tfx.orchestration.pipeline import RunOptions

    from tfx_estimator.pipeline.build import create_pipeline
    from tfx_estimator.pipeline.folders import PipelineFolders

    declared = declaration("bench-input", data_dir, 64, 1000, {})
    folders = PipelineFolders(workdir, declared.name)
    os.makedirs(folders.home, exist_ok=True)
    LocalDagRunner().run(create_pipeline(declared, folders), run_options=RunOptions(to_nodes=["Transform"]))
    return {
        "examples": _newest(os.path.join(folders.root, "TfdsExampleGen", "examples")),
        "transform": _newest(os.path.join(folders.root, "Transform", "transform_graph")),
    }


def trainer_spec(prepared: dict[str, Any], model_dir: str, batch_size: int, steps: int) -> dict[str, Any]:
    """Calls our trainer_fn as the Trainer does.

    Args:
        prepared: What `prepare` returned.
        model_dir: Folder of the training.
        batch_size: Examples.
        steps: Of training.

    Returns:
        `estimator`, `train_spec` and more.
    """
    from tfx.components.trainer.fn_args_utils import FnArgs

    from tfx_estimator.components.trainer.estimator.trainer_fn import trainer_fn
    from tfx_estimator.components.trainer.settings import SETTINGS_KEY, Settings

    optimizer = {"name": "sgd", "learning_rate": 1e-4, "schedule": "constant"}
    declared = declaration("bench-training", None, batch_size, steps, optimizer)
    settings = Settings(
        declaration=declared.dict(), image_shape=(28, 28, 1), label_names=tuple(str(digit) for digit in range(10))
    )
    fn_args = FnArgs(
        train_files=[os.path.join(prepared["examples"], "Split-train", "*")],
        eval_files=[os.path.join(prepared["examples"], "Split-eval", "*")],
        transform_output=prepared["transform"],
        model_run_dir=model_dir,
        train_steps=steps,
        eval_steps=0,
        custom_config={SETTINGS_KEY: settings.to_dict()},
    )
    return trainer_fn(fn_args, None)


def _newest(folder: str) -> str:
    return max(glob.glob(os.path.join(folder, "*")), key=lambda path: int(os.path.basename(path)))
