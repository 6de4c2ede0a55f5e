"""A table that TFX prepares once, and Trainers on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tfx.proto import trainer_pb2

from tests.artifacts import artifact
from tests.e2e.conftest import open_metadata
from tests.faults.file_operations import Forks
from tfx_estimator import testing
from tfx_estimator.components.trainer import Trainer
from tfx_estimator.pipeline.base.stack import stacks

HERE = Path(__file__).resolve().parent
STEPS = 200
MODULES = ("cancer_canned", "cancer_keras", "cancer_template")
BOTH = "cancer_both"


@dataclass(frozen=True)
class Run:
    root: Path
    models: dict[str, Path]
    output: str

    def properties(self, model: str) -> dict[str, Any]:
        """Returns the custom properties of a Trainer's model run, from ML Metadata."""
        runs = open_metadata(self.root).get_artifacts_by_type("ModelRun")
        (run,) = [run for run in runs if Path(run.uri).parents[1].name == model]
        return {key: value.double_value for key, value in run.custom_properties.items()}


@pytest.fixture(scope="session")
def others(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> Run:
    """A user's whole pipeline: Trainers for module files with each function, an Evaluator and a Pusher for the first.

    With `long` tests, an Evaluator and a Pusher for each of them; and TFX's own Trainer, named `tfx`, if it supports
    trainer_fn.
    """
    root = tmp_path_factory.mktemp("others")
    if any(item.get_closest_marker("long") for item in request.session.items):
        modules = [*MODULES, f"{BOTH}=trained", *(["tfx"] if stacks.current().has_trainer_fn_executor else [])]
    else:
        modules = [MODULES[0], f"{BOTH}=trained", f"{MODULES[2]}=trained"]
    forks.run(["others", str(root), *modules])
    return Run(root, {name: Path(folder) for name, folder in json.loads(forks.result).items()}, forks.output)


@dataclass(frozen=True)
class Trained:
    model: Path
    properties: dict[str, float]
    logs: Path

    @property
    def tasks(self) -> list[str]:
        return sorted({path.name.split(".")[0] for path in self.logs.glob("*.log")})


@pytest.fixture
def train(others: Run) -> Callable[..., Trained]:
    """Trains by the component on the pipeline's data; TFX packs the module."""
    kinds = {
        "examples": ("Examples", "Transform/transformed_examples"),
        "schema": ("Schema", "SchemaGen/schema"),
        "transform_graph": ("TransformGraph", "Transform/transform_graph"),
    }
    inputs: dict[str, Any] = {}
    for name, (kind, place) in kinds.items():
        (folder,) = (others.root / "artifacts" / place).iterdir()
        inputs[name] = artifact(kind, folder)
    inputs["examples"].split_names = json.dumps(["train", "eval"])

    def run(module: str, steps: int = STEPS, **arguments: Any) -> Trained:
        made = testing.run_component(
            Trainer,
            module_file=str(HERE / "modules" / f"{module}.py"),
            train_args=trainer_pb2.TrainArgs(num_steps=steps),
            eval_args=trainer_pb2.EvalArgs(),
            **inputs,
            **arguments,
        )
        measured = made["model_run"].mlmd_artifact.custom_properties
        properties = {name: value.double_value for name, value in measured.items()}
        return Trained(Path(made["model"].uri), properties, Path(made["model_run"].uri, "logs"))

    return run


@pytest.fixture(scope="session")
def eval_examples(others: Run) -> tuple[list[bytes], np.ndarray]:
    """The eval split after ingestion: serialized tf.Examples, and their labels."""
    files = list(others.root.glob("artifacts/CsvExampleGen/examples/*/Split-eval/*.gz"))
    records = list(tf.data.TFRecordDataset(list(map(str, files)), "GZIP").as_numpy_iterator())
    labels = [tf.train.Example.FromString(each).features.feature["benign"].int64_list.value[0] for each in records]
    return records, np.array(labels)


@pytest.fixture(scope="session")
def served(eval_examples: tuple[list[bytes], np.ndarray]) -> Callable[[Path], np.ndarray]:
    """Returns the probabilities of `benign` of an exported model for the eval split."""

    def serve(saved_model: Path) -> np.ndarray:
        signatures = tf.saved_model.load(str(saved_model)).signatures
        name, output = ("predict", "logistic") if "predict" in signatures else ("serving_default", "probability")
        return signatures[name](examples=tf.constant(eval_examples[0]))[output].numpy()[:, 0]

    return serve
