"""Real inputs for Trainer tests: the embedded digits, ingested and analysed once."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest

from tests.artifacts import artifact, example, outputs, write_records
from tests.faults.file_operations import Forks
from tests.folders import write_files
from tests.waiting import wait_until
from tfx_estimator.pipeline.base.errors import TrainingError

SHAPE = (28, 28, 1)
LABELS = tuple("0123456789")
PATHS = ("estimator", "keras", "keras_custom_loop")
TRAINER_FN = "tfx_estimator.components.trainer.estimator.trainer_fn.trainer_fn"


def at_once(come: Callable[[Callable[[], None]], None], count: int = 4) -> list[str]:
    """Starts jobs at the same time, each in its own thread.

    Args:
        come: A job; it calls its argument where it may train, which returns once all jobs have trained or failed.

    Returns:
        For each job "on" if it trained, or its error.
    """
    start, leave, outcomes = threading.Barrier(count), threading.Event(), []

    def train() -> None:
        outcomes.append("on")
        leave.wait()

    def job() -> None:
        start.wait()
        try:
            come(train)
        except TrainingError as error:
            outcomes.append(error.what)

    def have_all_outcomes() -> bool:
        for each in jobs:
            if each.done():
                each.result()
        return len(outcomes) >= count

    with futures.ThreadPoolExecutor(count) as threads:
        jobs = [threads.submit(job) for _ in range(count)]
        try:
            wait_until(have_all_outcomes, lambda: f"the outcome of each of {count} concurrent jobs: {outcomes}")
        finally:
            leave.set()
        for each in jobs:
            each.result()
    return outcomes


def each_path(short: str) -> pytest.MarkDecorator:
    """Runs a test on each path; on all but one with the long tests."""
    others = (pytest.param(path, marks=pytest.mark.long) for path in PATHS if path != short)
    return pytest.mark.parametrize("path", [short, *others])


@pytest.fixture(scope="session", autouse=True)
def tf_estimator() -> None:
    """Restores tf.estimator if TensorFlow lacks it, as each task does before it calls the user's code."""
    from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator

    bring_back_estimator()


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> dict[str, list[Any]]:
    """Input artifacts of a Trainer over the digits: examples, schema and transform_graph."""
    # Once, however many folders of tests import this fixture.
    if _DIGITS not in pytestconfig.stash:
        pytestconfig.stash[_DIGITS] = make_digits(tmp_path_factory.mktemp("digits"))
    return pytestconfig.stash[_DIGITS]


_DIGITS = pytest.StashKey[dict]()


class Codes(Forks):
    """Runs code in forked copies of a process that has imported what a training task imports first: see `run_code`."""

    def answers(self, *words: str, **environment: str) -> list[Any]:
        """Returns what `tests.root.answers` would with a fresh Python, but seconds sooner."""
        kind, *arguments = words
        if kind == "-c":
            code, *arguments = arguments
        elif kind == "-m":
            module, *arguments = arguments
            code = f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
        else:
            code = f"import runpy; runpy.run_path({kind!r}, run_name='__main__')"
        assert self.call(code, arguments, [], environment) == 0, self.output[-3000:]
        # TensorFlow prints lines as well.
        return [json.loads(line) for line in self.output.splitlines() if line.startswith(("[", "{"))]


@pytest.fixture(scope="session")
def codes(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Codes]:
    """Runs code in processes in which no TensorFlow operation has run."""
    # Once, however many folders of tests import this fixture.
    if _CODES in pytestconfig.stash:
        yield pytestconfig.stash[_CODES]
        return
    codes = pytestconfig.stash[_CODES] = Codes(
        "tests.components.trainer.run_code:run", tmp_path_factory.mktemp("codes")
    )
    yield codes
    del pytestconfig.stash[_CODES]
    codes.close()


_CODES = pytest.StashKey[Codes]()


def make_digits(home: Path, with_mean: bool = False) -> dict[str, list[Any]]:
    """Makes the artifacts; optionally with a second feature, each image's `mean`."""
    import tensorflow as tf
    from sklearn.datasets import load_digits

    from tfx_estimator.data.preprocessing import preprocessing_fn

    def preprocess(inputs: dict[str, Any]) -> dict[str, Any]:
        features = preprocessing_fn(inputs, {"image_shape": list(SHAPE)})
        mean = tf.reshape(tf.reduce_mean(features["image"], axis=[1, 2, 3]), [-1, 1])
        return {**features, "mean": mean} if with_mean else features

    bunch = load_digits()
    images = (bunch.images.repeat(3, axis=1).repeat(3, axis=2) * 15.9).astype("uint8")
    images = tf.pad(images, [[0, 0], [2, 2], [2, 2]]).numpy()
    held = [index % 5 == 0 for index in range(len(images))]
    pairs = list(zip(images, bunch.target, held))
    splits = {
        "train": [(image, label) for image, label, is_held in pairs if not is_held],
        "eval": [(image, label) for image, label, is_held in pairs if is_held],
    }
    return write_inputs(home, splits, preprocess)


def write_inputs(
    home: Path, splits: Mapping[str, Sequence[tuple[Any, int]]], preprocess: Callable, analysed: int | None = None
) -> dict[str, list[Any]]:
    """Writes the outputs of ingestion and Transform: tf.Examples, two files a split, the schema and a Transform graph.

    Args:
        splits: Images, uint8, and labels.
        analysed: How many examples of training Transform sees; None is all.
    """
    from tfx_estimator.components.image_schema_gen.executor import image_schema
    from tfx_estimator.pipeline.testing.preprocessing import analyze

    for split, pairs in splits.items():
        folder = home / "examples" / f"Split-{split}"
        folder.mkdir(parents=True)
        for shard in range(2):
            records = (example(image=image.tobytes(), label=int(label)) for image, label in pairs[shard::2])
            write_records(folder / f"data_tfrecord-{shard:05d}-of-00002", records)
    schema = image_schema(10)
    rows = [{"image": image.tobytes(), "label": int(label)} for image, label in splits["train"][:analysed]]
    shutil.move(analyze(preprocess, rows, schema).uri, home / "graph")
    write_files(home / "schema", {"schema.pbtxt": str(schema)})
    counts = {f"num_examples_{split}": len(pairs) for split, pairs in splits.items()}
    examples = artifact("Examples", home / "examples", **counts)
    examples.split_names = json.dumps(list(splits))
    schema, graph = artifact("Schema", home / "schema"), artifact("TransformGraph", home / "graph")
    return {"examples": [examples], "schema": [schema], "transform_graph": [graph]}


@pytest.fixture(scope="session")
def declaration() -> Callable[..., dict[str, Any]]:
    """Makes a declaration that trains digits for a moment; keyword arguments replace entries of `trainer`."""

    def make(**trainer: Any) -> dict[str, Any]:
        from tfx_estimator.pipeline.config import Declaration

        section = {
            "model": "mnist_cnn",
            "train_steps": 60,
            "global_batch_size": 32,
            "save_checkpoints_steps": 20,
            "log_every_steps": 20,
            **trainer,
        }
        if section.get("module_file"):
            section.pop("model", None)
        return Declaration.parse_obj({"name": "digits", "data": {"dataset": "digits"}, "trainer": section}).dict()

    return make


class Training:
    """Calls the executor as TFX does, execution after execution.

    Args:
        root: Stands in for the component's folder under the pipeline root.
    """

    def __init__(self, root: Path, inputs: dict[str, list[Any]]) -> None:
        self.root = root
        self.inputs = inputs
        self.executions = len(list((root / "model_run").glob("*")))

    def run(self, settings: Any, steps: int = 60, **functions: str) -> tuple[Path, Any]:
        """Executes once.

        Args:
            steps: `train_args.num_steps`.
            **functions: `trainer_fn`, `run_fn` or `module_file`; by default the built-in trainer_fn.

        Returns:
            Folder of the model and the model_run artifact.
        """
        from tfx_estimator.components.trainer.executor import Executor

        self.executions += 1
        made = outputs(self.root, self.executions)
        Executor().Do(self.inputs, made, properties_of(settings, steps, functions))
        return Path(made["model"][0].uri), made["model_run"][0]

    def folder(self, settings: Any, steps: int = 60, **functions: str) -> str:
        """Returns the training folder of `run` with the same arguments."""
        from tfx_estimator.components.trainer import training_folder

        model_run = str(self.root / "model_run" / str(self.executions + 1))
        return training_folder.locate(model_run, self.inputs, properties_of(settings, steps, functions), settings).uri


def properties_of(settings: Any, steps: int, functions: dict[str, str]) -> dict[str, Any]:
    return {
        "train_args": json.dumps({"num_steps": steps}),
        "eval_args": "{}",
        "custom_config": "null",
        **settings.to_properties(),
        **(functions or {"trainer_fn": TRAINER_FN}),
    }


def numbers(run: Any, *names: str) -> list[float]:
    """Returns numbers among a model_run's properties; 0 if one is missing."""
    return [run.get_float_custom_property(name) for name in names]


def rows_of(examples: str) -> list[dict[str, Any]]:
    """The evaluation examples: `image`, bytes, and `label`."""
    import tensorflow as tf

    records = tf.data.TFRecordDataset(tf.io.gfile.glob(f"{examples}/Split-eval/*")).as_numpy_iterator()
    parsed = [tf.train.Example.FromString(record).features.feature for record in records]
    return [{"image": each["image"].bytes_list.value[0], "label": each["label"].int64_list.value[0]} for each in parsed]


def served_accuracy(model: Path, examples: str) -> float:
    """The accuracy of an exported model on the evaluation examples."""
    from tfx_estimator.testing import export_and_serve

    rows = rows_of(examples)
    found = export_and_serve(model / "Format-Serving", rows)["probabilities"].argmax(-1)
    return float((found == [row["label"] for row in rows]).mean())


@pytest.fixture
def training(tmp_path: Path, digits: dict[str, list[Any]]) -> Training:
    """A fresh component folder over the digits."""
    return Training(tmp_path / "Trainer", digits)


@pytest.fixture
def train(training: Training, settings: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Trains on a path, also models of `user/`; returns the model's folder and the model_run."""
    monkeypatch.syspath_prepend(str(Path(__file__).with_name("user")))

    def run(path: str = "estimator", steps: int = 60, **section: Any) -> tuple[Path, Any]:
        return training.run(settings({"path": path, "train_steps": steps, **section}, path=path), steps)

    return run


@pytest.fixture(scope="session")
def settings(declaration: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    """Makes Settings around a declaration; `trainer` replaces its entries."""

    def make(trainer: dict[str, Any] | None = None, **values: Any) -> Any:
        from tfx_estimator.components.trainer.settings import Settings

        return Settings(declaration=declaration(**(trainer or {})), image_shape=SHAPE, label_names=LABELS, **values)

    return make
