"""The files that the user's code reads are noted with their content, however it opens them; no others are."""

from __future__ import annotations

import hashlib
import importlib
import json
import linecache
import pickle
import sys
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

from tfx_estimator.pipeline.user_source import loader, opened


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """Calls a function; returns the files of `data` that it has read, by name."""
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "data")

    def note(function, *own: str) -> list[str]:
        file = tmp_path / "notes"
        file.unlink(missing_ok=True)
        opened.noting(function, own=own, into=str(file))
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        found = {path: digest for path, digest in lines if digest}
        assert opened.noted() == {path: digest for path, digest in found.items() if [path, ""] not in lines}
        for path, digest in opened.noted().items():
            assert digest == hashlib.sha256(Path(path).read_bytes()).hexdigest()
        return sorted(str(Path(path).relative_to(tmp_path / "data")) for path in opened.noted())

    return note


def write(*names: str) -> None:
    for name in names:
        Path(name).write_text("1 2\n")


def test_whatever_python_opens_is_noted(notes):
    write("open.txt", "pathlib.txt", "json.json", "text.csv", "mapped.dat")
    Path("json.json").write_text("{}")
    np.save("array.npy", [1])
    Path("pickle.pkl").write_bytes(pickle.dumps(1))

    def read():
        with open("open.txt", "rb"), open(b"open.txt"):
            Path("pathlib.txt").read_text()
        with open("json.json") as file, open("pickle.pkl", "rb") as pickled:
            return np.load("array.npy"), json.load(file), pickle.load(pickled), np.loadtxt("text.csv")

    names = ["array.npy", "json.json", "open.txt", "pathlib.txt", "pickle.pkl", "text.csv"]
    assert notes(read) == names
    assert notes(lambda: np.memmap("mapped.dat", np.uint8)) == ["mapped.dat"]


def test_whatever_libraries_open_in_c_is_noted(notes):
    write("gfile.txt", "eager.txt", "in_graph.txt", "words.txt", "copied.txt", "lines.txt")
    with h5py.File("weights.h5", "w") as file:
        file["a"] = 1.0
    pyarrow.parquet.write_table(pa.table({"a": [1]}), "table.parquet")
    tf.train.Checkpoint(a=tf.Variable(1.0)).write("model.ckpt-1")
    tf.saved_model.save(tf.train.Checkpoint(a=tf.Variable(1.0)), "saved")
    for name in ("a.tfrecord", "b.tfrecord"):
        with tf.io.TFRecordWriter(name):
            pass

    def read():
        with h5py.File("weights.h5"), tf.io.gfile.GFile("gfile.txt") as text:
            text.read()
        pyarrow.parquet.read_table("table.parquet")
        tf.io.read_file("eager.txt")
        tf.function(lambda: tf.io.read_file("in_graph.txt"))()
        tf.io.gfile.copy("copied.txt", "copy.txt")
        tf.data.TFRecordDataset(["a.tfrecord"]), tf.data.TextLineDataset(tf.constant("lines.txt"))
        list(tf.compat.v1.io.tf_record_iterator("b.tfrecord"))
        words = tf.lookup.TextFileInitializer("words.txt", tf.string, 0, tf.int64, -1, delimiter=" ")
        tf.lookup.StaticHashTable(words, 0)
        tf.train.load_checkpoint("model.ckpt-1")
        tf.saved_model.load("saved")

    of_checkpoint = ("data-00000-of-00001", "index")
    assert notes(read) == sorted([
        *("a.tfrecord", "b.tfrecord", "copied.txt", "eager.txt", "gfile.txt", "in_graph.txt", "lines.txt"),
        *("table.parquet", "weights.h5", "words.txt", "saved/saved_model.pb"),
        *(f"model.ckpt-1.{part}" for part in of_checkpoint),
        *(f"saved/variables/variables.{part}" for part in of_checkpoint),
    ])  # fmt: skip


def test_a_file_of_a_module_is_noted_and_its_imports_are_not(notes, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    write("at_import.txt", "in_call.txt")
    (tmp_path / "reading_files.py").write_text(
        "import other_module, colorsys\nfrom pathlib import Path\nA = Path('at_import.txt').read_text()\n"
        "def call():\n    return Path('in_call.txt').read_text()\n"
    )
    (tmp_path / "other_module.py").write_text("import linecache\nA = linecache.getlines(__file__)\n")
    sys.modules.pop("colorsys", None)
    linecache.clearcache()
    loader.install([str(tmp_path)])
    assert notes(lambda: importlib.import_module("reading_files").call()) == ["at_import.txt", "in_call.txt"]


def test_what_the_code_writes_and_what_is_the_pipelines_own_is_not_noted(notes, tmp_path):
    write("kept.txt", "rewritten.txt")
    (tmp_path / "data" / "artifacts").mkdir()
    write("artifacts/examples")

    def read():
        Path("cache.txt").write_text("made here")
        for name in ("cache.txt", "kept.txt", "rewritten.txt", "artifacts/examples", "/proc/self/status"):
            Path(name).read_text()
        Path("rewritten.txt").write_text("2")
        with pytest.raises(FileNotFoundError):
            Path("missing.txt").read_text()

    assert notes(read, "artifacts") == ["kept.txt"]


def test_what_the_code_writes_in_c_is_not_noted(notes):
    variable = tf.Variable(1.0)

    def train():
        """Goes on from what it wrote the last time, as a training with checkpoints of its own does."""
        checkpoint, weights, count = tf.train.Checkpoint(a=variable), "own.h5", "count.txt"
        if latest := tf.train.latest_checkpoint("own"):
            checkpoint.restore(latest).assert_consumed()
            with h5py.File(weights), tf.io.gfile.GFile(count) as file:
                file.read()
        variable.assign_add(1.0)
        tf.train.CheckpointManager(checkpoint, "own", 1, checkpoint_name="w").save(checkpoint_number=1)
        with h5py.File(weights, "w") as file, tf.io.gfile.GFile(count, "w") as text:
            file["a"] = variable.numpy()
            text.write(str(variable.numpy()))

    assert notes(train) == notes(train) == []
    assert variable.numpy() == 3


def test_a_constant_path_is_noted_and_can_still_be_fed(notes):
    write("one.txt")
    with tf.Graph().as_default() as graph:
        path = tf.constant("one.txt")
        assert notes(lambda: tf.io.read_file(path)) == ["one.txt"]
        # As Keras feeds what it saves.
        assert graph.is_feedable(path)


def test_nothing_is_noted_outside_of_a_call(notes):
    write("one.txt", "two.txt")
    notes(lambda: Path("one.txt").read_text())
    before = opened.noted()
    Path("two.txt").read_text()
    assert opened.noted() == before


def test_a_change_of_the_same_size_changes_the_hash(tmp_path):
    file = tmp_path / "mean.txt"
    hashes = set()
    for text in ("0.5", "100", "0.5"):
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(file)
        hashes.add(opened.hash_file(str(file)))
    file.unlink()
    assert len(hashes) == 2
    assert opened.hash_file(str(file)) == opened.hash_file(str(tmp_path)) == ""
