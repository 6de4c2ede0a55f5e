"""Twenty changes, one at a time: which component reruns, and the reason shown. Drivers and caches are TFX's own."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tfx.orchestration.local import runner_utils
from tfx.proto.orchestration import executable_spec_pb2

from tests.folders import write_files
from tests.pipeline.run.writes import Writes, WritesByBeam
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.yaml_text import render
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.run.why import Why
from tfx_estimator.pipeline.runners.listener import NodeRun
from tfx_estimator.pipeline.runners.local import LocalRunner, prepare

DECLARATION = """\
name: own
data: {dataset: ./images, splits: {train: train, eval: test}, image_size: [4, 4], shards: 2}
transform: {module_file: prepare.py, files: [mean.txt]}
trainer:
  model: "networks:small"
  train_steps: 20
  files: [words]
  global_batch_size: 64
  optimizer: {learning_rate: 0.001}
evaluator: {min_accuracy: 0.5}
"""
NETWORKS = """\
import tensorflow as tf
from sizes import WIDTH

RATE = 0.1


def small(num_classes, width=1):
    return tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(num_classes)])


def other(num_classes, width=1):
    return small(num_classes)
"""
PREPARE = "def preprocessing_fn(inputs):\n    return inputs\n"
NODES = ("TfdsExampleGen", "Transform", "Trainer", "Evaluator", "Pusher")


class Listener:
    """Records the node runs of a pipeline, with reasons."""

    def __init__(self, why: Any) -> None:
        self.why, self.runs = why, []

    def run_started(self, nodes: Sequence[NodeRun]) -> None: ...
    def node_started(self, node: str, index: int, total: int) -> None: ...

    def node_ended(self, run: NodeRun) -> None:
        self.runs.append(dataclasses.replace(run, reason=self.why(run) if run.state == "ran" else ""))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project folder: declaration, modules and data."""
    folder = tmp_path_factory.mktemp("why")
    for name, text in (("own.yaml", DECLARATION), ("networks.py", NETWORKS), ("prepare.py", PREPARE)):
        (folder / name).write_text(text)
    write_files(folder, {"sizes.py": "WIDTH = 3\n", "mean.txt": "0.5", "words/a.txt": "a"})
    write_data(folder)
    return folder


@pytest.fixture
def run(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """Runs the declaration in a copy of the folder; returns the reasons by component."""

    def writes(deployment: Any, node: str) -> Any:
        """Keeps the kind of spec: a cache key contains the executor's spec, Beam's options included."""
        spec = extract(deployment, node)
        by_beam = isinstance(spec, executable_spec_pb2.BeamExecutableSpec)
        plain = spec.python_executor_spec if by_beam else spec
        if plain is not None:
            chosen = WritesByBeam if by_beam else Writes
            plain.class_path = f"{chosen.__module__}.{chosen.__name__}"
        return spec

    extract = runner_utils.extract_executor_spec
    monkeypatch.setattr(runner_utils, "extract_executor_spec", writes)
    folder = tmp_path / "project"
    shutil.copytree(home, folder)
    monkeypatch.chdir(folder)

    def start(*overrides: str) -> dict[str, str]:
        loaded = load("own.yaml", overrides)
        folders = PipelineFolders("runs", loaded.declaration.name)
        logs = Path(folders.make_logs())
        (logs / "declaration.yaml").write_text(render(loaded.declaration.dict(), loaded.origins))
        pipeline = prepare(loaded, folders)
        listener = Listener(Why(folders, loaded))
        LocalRunner(listener, folders).run(pipeline)
        (logs / "summary.json").write_text(
            json.dumps({"components": [dataclasses.asdict(each) for each in listener.runs]})
        )
        return {each.node: each.reason for each in listener.runs if each.reason}

    return start


def write_data(folder: Path, seed: int = 0) -> None:
    """Writes images of two classes in two splits."""
    draw = np.random.default_rng(seed)
    for name in ("train/a", "train/b", "test/a", "test/b"):
        (place := folder / "images" / name).mkdir(parents=True, exist_ok=True)
        for index in range(3):
            tf.io.write_file(str(place / f"{index}.png"), tf.io.encode_png(draw.integers(0, 255, (4, 4, 1), np.uint8)))


def replace(file: str, old: str, new: str) -> None:
    text = Path(file).read_text()
    assert old in text
    Path(file).write_text(text.replace(old, new))


def write_other() -> None:
    write_data(Path("."), seed=1)


PREPARED = "prepare.py changed: preprocessing_fn()"
PORTABLE = "beam.runner direct → portable; beam.environment_type none → LOOPBACK"
MIRRORED = "trainer.distribution.train.devices.cpu none → 2; trainer.distribution.train.strategy one_device → mirrored"
# Cumulative changes: what changes, the first component that reruns, and its reason.
CHANGES: list[tuple[str | Callable[[], None], str, str]] = [
    ("trainer.optimizer.learning_rate=0.002", "Trainer", "trainer.optimizer.learning_rate 0.001 → 0.002"),
    ("trainer.train_steps=40", "Trainer", "trainer.train_steps 20 → 40"),
    ("trainer.model=networks:other", "Trainer", "trainer.model networks:small → networks:other"),
    ("trainer.path=keras", "Trainer", "trainer.path estimator → keras"),
    ("trainer.distribution.train=mirrored:2", "Trainer", MIRRORED),
    ("trainer.seed=3", "Trainer", "trainer.seed 42 → 3"),
    ("trainer.params={width: 3}", "Trainer", "trainer.params.width none → 3"),
    ("trainer.log_every_steps=7", "", ""),
    ("beam={runner: portable, environment_type: LOOPBACK}", "TfdsExampleGen", PORTABLE),
    (lambda: replace("networks.py", "Flatten()", "Flatten(name='f')"), "Trainer", "networks.py changed: small()"),
    (lambda: replace("networks.py", "RATE = 0.1", "RATE = 0.2"), "Trainer", "networks.py changed: RATE"),
    (lambda: replace("networks.py", "= 0.2", "= 0.2  # slow"), "Trainer", "networks.py changed: comments or order"),
    (lambda: replace("sizes.py", "3", "4"), "Trainer", "sizes.py changed: WIDTH"),
    (lambda: replace("prepare.py", "return inputs", "return {**inputs}"), "Transform", PREPARED),
    (lambda: replace("mean.txt", "0.5", "100"), "Transform", "mean.txt changed"),
    (lambda: replace("words/a.txt", "a", "b"), "Trainer", "words changed"),
    (write_other, "TfdsExampleGen", "the files of the data set"),
    ("data.shards=3", "TfdsExampleGen", "data.shards 2 → 3"),
    ("data.image_size=[8, 8]", "TfdsExampleGen", "data.image_size [4, 4] → [8, 8]"),
    ("evaluator.min_accuracy=0.6", "Evaluator", "evaluator.min_accuracy 0.5 → 0.6"),
    ("evaluator.slices=[]", "Evaluator", 'evaluator.slices ["label"] → []'),
    (lambda: shutil.rmtree("runs/own/artifacts/Trainer/model"), "Trainer", "its output was deleted"),
    (lambda: shutil.rmtree("runs/own/logs"), "", ""),
]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_of_twenty_changes_has_its_reason(run):
    first = run()
    assert set(first.values()) == {"first run"}
    assert set(NODES) <= set(first)
    assert run() == {}
    declared: list[str] = []
    for change, node, reason in CHANGES:
        if isinstance(change, str):
            declared.append(change)
        else:
            change()
        reasons = run(*declared)
        print(reasons)
        if not node:
            assert reasons == {}, change
            continue
        # It may also name new outputs of components upstream.
        assert reasons[node].partition("; new ")[0] == reason
        order = list(reasons)
        # Upstream is cached, except Transform: TFX packs all modules of the folder in its wheel.
        assert order[0] == node or (
            order[:2] == ["Transform", node] and "a module next to prepare.py" in reasons.values()
        )
        after = set(NODES[NODES.index(node) + 1 :])
        for name in after & set(reasons):
            assert reasons[name].startswith("new ")
