"""Trainings through the executor on a few thousand real images, each done once however many tests look at it."""

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

from tests.components.trainer.conftest import Training
from tests.faults.file_operations import Forks

# 403 examples divide neither into batches of 100 nor among two replicas.
TRAIN, EVAL = 2000, 403
EVAL_BATCH = 100
# An Estimator's summary; in a graph with a model of Keras's, the first is the name of a scope.
LOSSES = ("loss", "loss_1")
# Two at a time, as there are cores that may be counted on; most of a training's time is its processes' start.
AT_ONCE = 2
ONE_DEVICE: dict[str, Any] = {"strategy": "one_device"}
MULTI_WORKER: dict[str, Any] = {"strategy": "multi_worker_mirrored", "workers": 2}


@dataclass(frozen=True)
class Images:
    """Images and labels of both splits, and the Trainer's input artifacts that hold the same.

    Args:
        train: uint8 [TRAIN, height, width, channels], and int64 [TRAIN].
        eval: The same of EVAL examples.
        inputs: `examples`, `schema` and `transform_graph`.
    """

    train: tuple[np.ndarray, np.ndarray]
    eval: tuple[np.ndarray, np.ndarray]
    inputs: dict[str, list[Any]]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width, channels."""
        return self.train[0].shape[1:]


@dataclass(frozen=True)
class Trained:
    """What a training left.

    Args:
        losses: The loss of each step, oldest first; a step that was done again comes again.
        weights: Every variable of the last checkpoint.
        model: Folder of the served model.
    """

    losses: list[tuple[int, float]]
    weights: dict[str, np.ndarray]
    model: Path
    run: Any

    def loss(self, step: int) -> float:
        """The loss of a step, the last time that it was done."""
        return dict(self.losses)[step]

    @property
    def steps(self) -> list[int]:
        """Steps with a loss, each once."""
        return sorted(dict(self.losses))

    def metric(self, name: str) -> float:
        """Of the model_run artifact."""
        return self.run.get_float_custom_property(name)


class Trainings:
    """Trains, two trainings at a time.

    Args:
        make_root: Makes a fresh folder.
        images: Data sets by name.
    """

    def __init__(self, make_root: Callable[[], Path], images: Callable[[str], Images]) -> None:
        self._make_root = make_root
        self._images = images
        self._done: dict[str, Trained] = {}

    def run(self, *wanted: dict[str, Any]) -> list[Trained]:
        """Trains what was not trained before, to its end.

        Args:
            *wanted: Entries of the `trainer` section; and `data`, see `images`, and `name`, which tells trainings with
                equal entries apart.

        Returns:
            What came of each, in the same order.
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
        """Trains once.

        Args:
            root: The component's folder; what an earlier training left there unfinished is gone on with.
            values: As for `run`.
        """
        from tfx_estimator.components.trainer.settings import Settings, built_in_function
        from tfx_estimator.pipeline.config import Declaration

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
        )
        functions = built_in_function(settings.trainer)
        model, run = Training(root, images.inputs).run(settings, trainer["train_steps"], **functions)
        folder = os.path.join(run.uri, "Format-Serving") if user_module else run.uri
        return Trained(read_losses(folder), read_weights(folder), model, run)


def read_losses(folder: str, names: Sequence[str] = LOSSES) -> list[tuple[int, float]]:
    """Reads the losses of all steps, or another curve, from TensorBoard's events.

    Returns:
        Step and value, as they were written.
    """
    import tensorflow as tf

    # Their names begin with the time.
    paths = sorted(tf.io.gfile.glob(os.path.join(folder, "events.out.tfevents.*")))
    events = [event for path in paths for event in tf.compat.v1.train.summary_iterator(path)]
    return [(event.step, value.simple_value) for event in events for value in event.summary.value if value.tag in names]


def read_weights(folder: str) -> dict[str, np.ndarray]:
    """Reads every variable of the last checkpoint: weights, the optimizer's and the global step.

    Args:
        folder: Of the checkpoint.

    Returns:
        By name; of a Keras path's checkpoint too, which knows them by their place in the model.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

    checkpoint = tf.train.load_checkpoint(folder)
    names = {name: name for name in checkpoint.get_variable_to_shape_map()}
    if _OBJECTS in names:
        objects = TrackableObjectGraph.FromString(checkpoint.get_tensor(_OBJECTS)).nodes
        names = {each.full_name: each.checkpoint_key for node in objects for each in node.attributes if each.full_name}
    return {name: checkpoint.get_tensor(key) for name, key in names.items()}


_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"


def largest_difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """The largest absolute difference between variables of the same names."""
    assert sorted(one) == sorted(other)
    return max(float(np.abs(value.astype(np.float64) - other[name]).max()) for name, value in one.items())


@pytest.fixture(scope="session")
def images(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Images]:
    """Returns a data set by name, and prepares it the first time.

    `mnist` and `cifar10` have the built-in preprocessing, in whose moments TensorFlow's optimisations round a last bit
    differently under multi_worker_mirrored. `mnist exact` and `cifar10 exact` have one without any rounding.
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
    """Runs a module of this package, which trains, in a process of its own, of one thread an op: see `apart`."""
    forks = Forks("tests.equivalence.apart:run", tmp_path_factory.mktemp("apart"))

    def train(module: str, folder: Path, *arguments: str) -> None:
        assert forks.call(module, str(folder), *arguments) == 0, forks.said[-3000:]

    yield train
    forks.close()


@pytest.fixture(scope="session")
def trainings(images: Callable[[str], Images], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainings]:
    """Trains, and remembers; `user/` is found as the modules beside a declaration are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent / "user"))
        yield Trainings(lambda: tmp_path_factory.mktemp("Trainer"), images)


def _load(name: str, request: pytest.FixtureRequest) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The first examples of the real data set where this machine has it; else digits, in its shape."""
    try:
        folder = request.getfixturevalue("real_data_dir")
    except pytest.skip.Exception:
        return _digits(name)
    return {split: first_images(folder, name, part, count) for split, part, count in _PARTS}


_PARTS = (("train", "train", TRAIN), ("eval", "test", EVAL))


def first_images(folder: str, name: str, part: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Reads the first images and labels of a split.

    Args:
        part: `train` or `test`.
    """
    import tensorflow as tf

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
    """Writes what ingestion and Transform would: tf.Examples of raw uint8, two files a split, and a Transform graph.

    Args:
        exact: With a preprocessing that does not round, in place of the built-in one.
    """
    import tensorflow as tf
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam
    from apache_beam import Create, Pipeline
    from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils
    from tfx.types import standard_artifacts

    from tfx_estimator.components.image_schema_gen.executor import image_schema
    from tfx_estimator.data.preprocessing import decode_images, preprocessing_fn

    shape = splits["train"][0].shape[1:]

    def preprocess(inputs: dict[str, Any]) -> dict[str, Any]:
        if not exact:
            return preprocessing_fn(inputs, {"image_shape": list(shape)})
        images = tf.cast(decode_images(inputs["image"], shape), tf.float32)
        return {"image": images / 256.0 - 0.5, "label": tf.reshape(inputs["label"], [-1])}

    for split, (images, labels) in splits.items():
        folder = home / "examples" / f"Split-{split}"
        folder.mkdir(parents=True)
        records = [_example(image, int(label)) for image, label in zip(images, labels)]
        for shard in range(2):
            with tf.io.TFRecordWriter(str(folder / f"data_tfrecord-{shard:05d}-of-00002")) as writer:
                for record in records[shard::2]:
                    writer.write(record)
    schema = image_schema(10)
    (home / "schema").mkdir()
    (home / "schema" / "schema.pbtxt").write_text(str(schema))
    metadata = dataset_metadata.DatasetMetadata.from_feature_spec(
        schema_utils.schema_as_feature_spec(schema).feature_spec
    )
    # A few are enough for the moments of the channels.
    raw = [{"image": image.tobytes(), "label": int(label)} for image, label in zip(*(x[:200] for x in splits["train"]))]
    options = ["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"]
    with Pipeline(argv=options) as pipeline, tft_beam.Context(temp_dir=str(home / "tmp")):
        graph = (pipeline | Create(raw), metadata) | tft_beam.AnalyzeDataset(preprocess)
        _ = graph | tft_beam.WriteTransformFn(str(home / "graph"))
        _ = metadata | tft_beam.WriteMetadata(str(home / "graph" / tft.TFTransformOutput.RAW_METADATA_DIR), pipeline)
    examples = standard_artifacts.Examples()
    examples.split_names = json.dumps(sorted(splits))
    artifacts: Sequence[tuple[str, Any, str]] = (
        ("examples", examples, "examples"),
        ("schema", standard_artifacts.Schema(), "schema"),
        ("transform_graph", standard_artifacts.TransformGraph(), "graph"),
    )
    for _, artifact, folder_name in artifacts:
        artifact.uri = str(home / folder_name)
    return {name: [artifact] for name, artifact, _ in artifacts}


def _example(image: np.ndarray, label: int) -> bytes:
    import tensorflow as tf

    example = tf.train.Example()
    example.features.feature["image"].bytes_list.value.append(image.tobytes())
    example.features.feature["label"].int64_list.value.append(label)
    return example.SerializeToString()
