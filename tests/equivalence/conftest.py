"""Trainings by the executor on a few thousand real images, each done once for all tests."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from tests.components.trainer.conftest import Training
from tests.components.trainer.conftest import write_inputs as write_artifacts
from tests.faults.file_operations import Forks
from tfx_estimator.components.trainer.settings import Settings, built_in_function
from tfx_estimator.data.preprocessing import decode_images, preprocessing_fn
from tfx_estimator.pipeline.config import Declaration

# 403 examples divide neither into batches of 100 nor among two replicas.
TRAIN, EVAL = 2000, 403
EVAL_BATCH = 100
# An Estimator's summary; in a graph with a Keras model, the first is a scope's name.
LOSSES = ("loss", "loss_1")
# Two at a time, the number of cores that one can expect; starting processes takes most of a training's time.
AT_ONCE = 2
ONE_DEVICE: dict[str, Any] = {"strategy": "one_device"}
MULTI_WORKER: dict[str, Any] = {"strategy": "multi_worker_mirrored", "workers": 2}


@dataclass(frozen=True)
class Images:
    """Images, uint8, and labels of both splits, and the Trainer's input artifacts with the same data."""

    train: tuple[np.ndarray, np.ndarray]
    eval: tuple[np.ndarray, np.ndarray]
    inputs: dict[str, list[Any]]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width, channels."""
        return self.train[0].shape[1:]


@dataclass(frozen=True)
class Trained:
    """The outputs of a training."""

    # Of each step, oldest first; a repeated step has several.
    losses: list[tuple[int, float]]
    # Every variable of the last checkpoint.
    weights: dict[str, np.ndarray]
    # Folder of the served model.
    model: Path
    run: Any

    def loss(self, step: int) -> float:
        """Returns the loss of a step, from its last repetition."""
        return dict(self.losses)[step]

    @property
    def steps(self) -> list[int]:
        """The steps that have a loss."""
        return sorted(dict(self.losses))

    def metric(self, name: str) -> float:
        """Returns a metric of the model_run artifact."""
        return self.run.get_float_custom_property(name)

    def assert_losses_of(self, other: Trained, steps: int, atol: float = 0.0, rtol: float = 0.0) -> None:
        """Compares every step's loss."""
        assert self.steps == other.steps == list(range(1, steps + 1))
        losses = [[each.loss(step) for step in each.steps] for each in (other, self)]
        np.testing.assert_allclose(losses[1], losses[0], rtol=rtol, atol=atol)

    def assert_bits_of(self, other: Trained) -> None:
        """Compares all variables but the number of checkpoints."""
        assert sorted(self.weights) == sorted(other.weights)
        for name in other.weights.keys() - {"save_counter"}:
            np.testing.assert_array_equal(self.weights[name], other.weights[name], err_msg=name)

    def assert_killed_once(self, marker: Path, steps: int) -> None:
        """Checks that the training was restarted, and went to its end."""
        assert marker.exists()
        assert (self.metric("restarts"), self.metric("last_step")) == (1, steps)


class Trainings:
    """Runs trainings, two at a time."""

    def __init__(self, make_root: Callable[[], Path], images: Callable[[str], Images]) -> None:
        self._make_root = make_root
        self._images = images
        self._done: dict[str, Trained] = {}

    def run(self, *wanted: dict[str, Any]) -> list[Trained]:
        """Runs the trainings that are not done yet; returns the outputs of each, in the same order.

        Args:
            *wanted: Entries of the `trainer` section; and `data`, see `images`, and `name`, which distinguishes
                trainings with equal entries.
        """
        keys = [json.dumps(values, sort_keys=True) for values in wanted]
        new = {key: values for key, values in zip(keys, wanted) if key not in self._done}
        jobs = {key: (self._make_root(), values) for key, values in new.items()}
        for values in new.values():
            self._images(values["data"])
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for key, trained in zip(jobs, pool.map(lambda job: self.train(*job), jobs.values())):
                self._done[key] = trained
        return [self._done[key] for key in keys]

    def train(self, root: Path, values: dict[str, Any]) -> Trained:
        """Trains once; resumes an unfinished training in the component's folder."""
        images = self._images(values["data"])
        trainer = {
            "train_steps": 60,
            "save_checkpoints_steps": 60,
            "log_every_steps": 1,
            "eval_batch_size": EVAL_BATCH,
            **{key: value for key, value in values.items() if key not in ("data", "name")},
        }
        declared = Declaration.parse_obj({"name": "equal", "data": {"dataset": "digits"}, "trainer": trainer}).dict()
        user_module = "module_file" in trainer
        settings = Settings(
            declaration=declared,
            image_shape=images.shape,
            label_names=tuple("0123456789"),
            path="" if user_module else declared["trainer"]["path"],
            encoded="" if user_module else "resized",
        )
        functions = built_in_function(settings.trainer)
        model, run = Training(root, images.inputs).run(settings, trainer["train_steps"], **functions)
        folder = os.path.join(run.uri, "Format-Serving") if user_module else run.uri
        return Trained(read_losses(folder), read_weights(folder), model, run)


def read_losses(folder: str, names: Sequence[str] = LOSSES) -> list[tuple[int, float]]:
    """Reads the losses of all steps, or another curve, from TensorBoard's events, in their order."""
    # Their names start with the time.
    paths = sorted(tf.io.gfile.glob(os.path.join(folder, "events.out.tfevents.*")))
    events = [event for path in paths for event in tf.compat.v1.train.summary_iterator(path)]
    return [(event.step, value.simple_value) for event in events for value in event.summary.value if value.tag in names]


def read_weights(folder: str) -> dict[str, np.ndarray]:
    """Reads every variable of the last checkpoint by name, also for a Keras path, which stores them by position."""
    checkpoint = tf.train.load_checkpoint(folder)
    names = {name: name for name in checkpoint.get_variable_to_shape_map()}
    if _OBJECTS in names:
        objects = TrackableObjectGraph.FromString(checkpoint.get_tensor(_OBJECTS)).nodes
        names = {each.full_name: each.checkpoint_key for node in objects for each in node.attributes if each.full_name}
    return {name: checkpoint.get_tensor(key) for name, key in names.items()}


_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"


def largest_difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """Returns the largest absolute difference between variables of the same names."""
    assert sorted(one) == sorted(other)
    return max(float(np.abs(value.astype(np.float64) - other[name]).max()) for name, value in one.items())


def flat_weights(file: Path) -> np.ndarray:
    """Returns the contents of a file as one row of numbers."""
    values = np.load(file)
    return np.concatenate([values[key].ravel() for key in values.files])


def by_layer(variables: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns kernels and biases by the names of their layers: the paths' names differ in the scope."""
    ends = ("kernel", "bias")
    return {"/".join(name.split("/")[-2:]): value for name, value in variables.items() if name.endswith(ends)}


def assert_alike(whole: Trained, parts: Trained, steps: int, atol: float) -> None:
    """Compares every step's loss, and the weights of each layer."""
    parts.assert_losses_of(whole, steps, atol)
    assert largest_difference(by_layer(whole.weights), by_layer(parts.weights)) <= atol


def trainer_of(network: str, train: dict[str, Any], **params: Any) -> dict[str, Any]:
    """Returns the declared trainer of a network in float64: see `own_networks`."""
    return {
        "data": "mnist exact",
        "model": "own_networks:in_float64",
        "params": {"network": network, **params},
        "global_batch_size": 32,
        "intra_op_threads": 1,
        "distribution": {"train": train, "max_restarts": 0},
    }


def regularised(train: dict[str, Any]) -> dict[str, Any]:
    """Returns that of a network with both layers that depend on all replicas."""
    return trainer_of("regularised", train, norm="synchronized", dropout="stateless")


def killed_once(declared: dict[str, Any], kill_at: int, marker: Path, interval: int = 20) -> dict[str, Any]:
    """Returns the trainer with a model that kills a worker once, between two checkpoints."""
    return {
        **declared,
        "model": "own_networks:killed_once",
        "params": {"kill_at": kill_at, "marker": str(marker)},
        "save_checkpoints_steps": interval,
        "distribution": {**declared["distribution"], "max_restarts": 1},
    }


@pytest.fixture(scope="session")
def images(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Images]:
    """Returns a data set by name, and prepares it the first time.

    `mnist` and `cifar10` have the built-in preprocessing; TensorFlow's optimisations round the last bit of its moments
    differently under multi_worker_mirrored. `mnist exact` and `cifar10 exact` have one without rounding.
    """
    prepared: dict[str, Images] = {}

    def prepare(name: str) -> Images:
        if name not in prepared:
            dataset, _, kind = name.partition(" ")
            splits = _load(dataset, request)
            inputs = write_inputs(tmp_path_factory.mktemp(dataset), splits, exact=kind == "exact")
            prepared[name] = Images(splits["train"], splits["eval"], inputs)
        return prepared[name]

    return prepare


@pytest.fixture(scope="session")
def train_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., None]]:
    """Runs a training module of this package in its own process, with one thread per op: see `apart`."""
    forks = Forks("tests.equivalence.apart:run", tmp_path_factory.mktemp("apart"))

    def train(module: str, folder: Path, *arguments: str) -> None:
        assert forks.call(module, str(folder), *arguments) == 0, forks.output[-3000:]

    yield train
    forks.close()


@pytest.fixture(scope="module")
def apart(train_apart: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Returns the folder of what a module trains; each group of arguments is trained once."""
    folder, done = tmp_path_factory.mktemp("apart"), set()

    def get(module: str, *arguments: str) -> Path:
        if arguments not in done:
            train_apart(module, folder, *arguments)
            done.add(arguments)
        return folder

    return get


@pytest.fixture(scope="session")
def trainings(images: Callable[[str], Images], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainings]:
    """Trainings, each done once; `user/` is on the path like the modules next to a declaration."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent / "user"))
        yield Trainings(lambda: tmp_path_factory.mktemp("Trainer"), images)


def _load(name: str, request: pytest.FixtureRequest) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns the first examples of the real data set if this machine has it; otherwise digits, in its shape."""
    try:
        folder = request.getfixturevalue("real_data_dir")
    except pytest.skip.Exception:
        return _digits(name)
    return {split: first_images(folder, name, part, count) for split, part, count in _PARTS}


_PARTS = (("train", "train", TRAIN), ("eval", "test", EVAL))


def first_images(folder: str, name: str, part: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Reads the first images and labels of a part, `train` or `test`."""
    path = next(Path(folder, name).glob(f"*/{name}-{part}.tfrecord-00000-*"))
    spec = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    parsed = [tf.io.parse_single_example(record, spec) for record in tf.data.TFRecordDataset(str(path)).take(count)]
    images = np.stack([tf.io.decode_png(example["image"]).numpy() for example in parsed])
    return images, np.array([int(example["label"]) for example in parsed])


def _digits(name: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    side, channels = (28, 1) if name == "mnist" else (32, 3)
    images = (bunch.images.repeat(3, axis=1).repeat(3, axis=2) * 15.9).astype(np.uint8)
    margin = (side - images.shape[1]) // 2
    images = np.pad(images, [(0, 0), (margin, margin), (margin, margin)])[..., np.newaxis].repeat(channels, axis=3)
    labels = bunch.target.astype(np.int64)
    return {"train": (images[EVAL:], labels[EVAL:]), "eval": (images[:EVAL], labels[:EVAL])}


def write_inputs(home: Path, splits: dict[str, tuple[np.ndarray, np.ndarray]], exact: bool) -> dict[str, list[Any]]:
    """Writes a Trainer's inputs, with the built-in preprocessing or, `exact`, one that does not round."""
    shape = splits["train"][0].shape[1:]

    def preprocess(inputs: dict[str, Any]) -> dict[str, Any]:
        if not exact:
            return preprocessing_fn(inputs, {"image_shape": list(shape)})
        images = tf.cast(decode_images(inputs["image"], shape), tf.float32)
        return {"image": images / 256.0 - 0.5, "label": tf.reshape(inputs["label"], [-1])}

    # A few examples are enough for the moments of the channels.
    return write_artifacts(home, {split: list(zip(*pair)) for split, pair in splits.items()}, preprocess, analysed=200)
