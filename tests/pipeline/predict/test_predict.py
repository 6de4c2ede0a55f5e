"""`tfx-estimator predict`: its inputs, its outputs, and its errors for files that cannot be read."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Optional

import numpy as np
import pyarrow.parquet
import pytest
import tensorflow as tf
from PIL import Image

from tests.artifacts import example, write_records
from tests.root import start_python
from tests.waiting import wait_until
from tfx_estimator.__main__ import main
from tfx_estimator.data.sources.image_decoding import read_image
from tfx_estimator.pipeline.predict import found_model, on_beam

pytestmark = pytest.mark.unit

SIDE = 4
LABELS = ("dark", "grey", "pale")
# Coefficients of the classes' logits, from the mean of an image, 0 to 1.
SLOPES = np.array([-8.0, 0.0, 8.0], np.float32)
MIDDLE = np.array([4.0, 1.0, -4.0], np.float32)


def probabilities(pixels: np.ndarray) -> np.ndarray:
    """Returns the prediction of the models below for one image."""
    powers = np.exp(SLOPES * np.float32(pixels.mean() / 255) + MIDDLE)
    return powers / powers.sum()


class Brightness(tf.Module):
    """Classifies images, and tf.Examples of them, by brightness."""

    def __init__(self, names: bool = True) -> None:
        super().__init__()
        self.slopes = tf.Variable(SLOPES)
        self._names = names

    @tf.function(input_signature=[tf.TensorSpec([None, SIDE, SIDE, 1], tf.uint8, "images")])
    def from_images(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        return self.answer(tf.cast(images, tf.float32) / 255)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
    def from_examples(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(examples, {"image": tf.io.FixedLenFeature([], tf.string)})["image"]
        return self.from_images(tf.reshape(tf.io.decode_raw(parsed, tf.uint8), [-1, SIDE, SIDE, 1]))

    @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3], tf.float32, "pixels")])
    def from_floats(self, pixels: tf.Tensor) -> dict[str, tf.Tensor]:
        return self.answer(pixels)

    def answer(self, pixels: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = tf.reduce_mean(pixels, [1, 2, 3])[:, None] * self.slopes + MIDDLE
        found = {"probabilities": tf.nn.softmax(logits)}
        if self._names:
            found["classes"] = tf.gather(tf.constant(list(LABELS)), tf.argmax(logits, -1))
        return found


def save(folder: Path, names: bool = True, **signatures: str) -> str:
    model = Brightness(names)
    tf.saved_model.save(model, str(folder), {name: getattr(model, each) for name, each in signatures.items()})
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of model versions, like the Pusher's."""
    serving = tmp_path_factory.mktemp("serving")
    save(serving / "9", serving_default="from_images")
    save(serving / "10", serving_default="from_examples", images="from_images")
    return str(serving)


@pytest.fixture
def images(tmp_path: Path) -> dict[str, np.ndarray]:
    """Image files in a folder, with the pixels the model receives."""
    folder, found = tmp_path / "images", {}
    for name, level, side in (("a.png", 10, SIDE), ("b.jpg", 140, SIDE), ("in/c.PNG", 250, 3 * SIDE)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.clip(level + np.arange(side * side).reshape(side, side), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(path)
        found[str(path)] = read_image(path, 1, (SIDE, SIDE))
    return found


Run = Callable[..., tuple[str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `predict`; returns its stdout and stderr."""

    def call(*args: object, code: int = 0, lines: str = "") -> tuple[str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(os.fsencode(lines))))
        capfd.readouterr()
        exit_code = main(["predict", *map(str, args)])
        found = capfd.readouterr()
        assert exit_code == code, found.err
        assert "Traceback" not in found.err
        assert "Exception ignored" not in found.err
        return found.out, found.err

    return call


def check(table: str, expected: dict[str, np.ndarray], labels: Optional[tuple[str, ...]] = LABELS) -> None:
    """Checks the rows of a table, in order: the class, and a score for each class."""
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["file"] for row in rows] == list(expected)
    names = labels or ("0", "1", "2")
    for row, pixels in zip(rows, expected.values()):
        wanted = probabilities(pixels)
        assert list(row) == ["file", "class", *(f"score_{name}" for name in names)]
        assert [float(row[f"score_{name}"]) for name in names] == pytest.approx(wanted, abs=1e-6)
        assert row["class"] == names[wanted.argmax()]


def test_a_folder_images_a_table_and_names_on_stdin_have_the_same_predictions(run, model, images, tmp_path):
    folder = tmp_path / "images"
    whole, stderr = run(model, folder)
    check(whole, images)
    assert {line.split(",")[1] for line in whole.splitlines()[1:]} == {"dark", "grey", "pale"}
    assert f"model  {model}/10" in stderr
    assert "3 predicted" in stderr
    assert run(model, *images)[0] == whole
    assert run(model, "-", lines="\n".join(images) + "\n")[0] == whole
    (folder / "table.csv").write_text(
        "label,file\n" + "".join(f"x,{Path(each).relative_to(folder)}\n" for each in images)
    )
    assert run(model, folder / "table.csv")[0] == whole
    assert run(model, folder, "--batch-size", 1)[0].split(",")[1] == whole.split(",")[1]
    # A table that lists only images of the folder.
    assert f"left out, as neither images nor TFRecord files, or hidden: {folder}/table.csv" in run(model, folder)[1]


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_records_are_predicted_as_the_images_in_them(run, model, images, tmp_path, compression):
    records = tmp_path / "data_tfrecord-00000-of-00001"
    with tf.io.TFRecordWriter(str(records), compression) as writer:
        for pixels in images.values():
            writer.write(example(image=pixels.tobytes(), label=0))
    expected = {f"{records}:{number}": pixels for number, pixels in enumerate(images.values())}
    check(run(model, records)[0], expected)
    (tmp_path / "images" / "more").mkdir()
    records = records.rename(tmp_path / "images" / "more" / "records")
    expected = {f"{records}:{number}": pixels for number, pixels in enumerate(images.values())}
    check(run(model, tmp_path / "images")[0], {**images, **expected})


def test_unreadable_files_are_listed_and_the_rest_is_predicted(run, model, images, tmp_path):
    folder = tmp_path / "images"
    whole = (folder / "in" / "c.PNG").read_bytes()
    (folder / "in" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "other.gif").write_bytes(b"GIF89a")
    records = write_records(tmp_path / "cut", [example(image=bytes(16), label=0)] * 2)
    Path(records).write_bytes(Path(records).read_bytes()[:-5])
    found, stderr = run(model, folder, tmp_path / "gone.png", records, __file__, code=3)
    check(found, {**images, f"{records}:0": np.zeros((4, 4, 1), np.uint8)})
    for name in (f"{folder}/in/cut.png", f"{folder}/other.gif", f"{tmp_path}/gone.png", records, __file__):
        assert f"damaged file {name}: " in stderr
    assert f"tfx-estimator: 5 could not be read, first {folder}/other.gif" in stderr


@pytest.mark.timeout(60)
def test_a_link_to_itself_and_a_pipe_are_named_and_the_rest_is_predicted(run, model, images, tmp_path):
    folder = tmp_path / "images"
    (folder / "a loop").symlink_to(folder / "a loop")
    (folder / "gone").symlink_to(tmp_path / "nothing")
    os.mkfifo(folder / "in" / "a.png")
    found, stderr = run(model, folder, code=3)
    check(found, images)
    for name, why in (
        ("a loop", "Too many levels of symbolic links"),
        ("in/a.png", "it is not a regular file"),
        ("gone", "it is missing"),
    ):
        assert re.search(f"damaged file {folder}/{name}: .*{why}", stderr)
    assert "3 could not be read" in stderr
    assert "it is not a regular file" in run(model, folder / "in" / "a.png", code=3)[1]


def test_formats_are_predicted_by_content(run, model, images, tmp_path):
    folder = tmp_path / "images"
    pixels = np.full((SIDE, SIDE), 90, np.uint8)
    more = {str(folder / name): pixels[..., None] for name in ("d.jpg", "e.bmp", "f")}
    for name, form in zip(more, ("WEBP", "BMP", "GIF")):
        Image.fromarray(pixels).save(name, form, **({"lossless": True} if form == "WEBP" else {}))
    (folder / "x.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(99))
    found, stderr = run(model, folder, code=3)
    check(found, {**dict(list(images.items())[:2]), **more, **dict(list(images.items())[2:])})
    assert f"{folder}/x.heic is an image in the format HEIC" in stderr


@pytest.mark.parametrize("engine", [[], ["--beam", "digits"]])
def test_images_in_a_table_are_named_by_their_rows(run, model, images, tmp_path, engine):
    table = tmp_path / "table.parquet"
    cells = [{"bytes": Path(name).read_bytes(), "path": None} for name in images]
    pyarrow.parquet.write_table(pyarrow.table({"image": cells}), table)
    run(model, table, "--output", tmp_path / "out.csv", *engine)
    check((tmp_path / "out.csv").read_text(), {f"{table}:{row}": image for row, image in enumerate(images.values())})


# A thread that reads from a file system that does not answer any more.
_STUCK = """
import pathlib, sys, threading
from tfx_estimator import __main__
from tfx_estimator.pipeline.predict import reading

def wait(*args):
    begun.touch()
    threading.Event().wait()

begun = pathlib.Path(sys.argv.pop())
reading.read_image = wait
sys.exit(__main__.main())
"""


@pytest.mark.timeout(120)
def test_sigterm_ends_a_prediction_whose_file_is_never_read(model, images, tmp_path):
    output = tmp_path / "out" / "out.csv"
    output.parent.mkdir()
    process = start_python("-c", _STUCK, "predict", model, *images, "--output", str(output), str(tmp_path / "begun"))
    try:
        wait_until((tmp_path / "begun").exists, "reading")
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, list(output.parent.iterdir())) == (143, [])
    assert "ended by SIGTERM" in stderr


def test_names_need_not_be_text(run, model, images, tmp_path):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\n,.png")
    shutil.copy(next(iter(images)), odd)
    (row,) = list(csv.reader(io.StringIO(run(model, odd)[0])))[1:]
    assert row[0] == f"{tmp_path}/\\udcff\n,.png"
    records = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.rename(write_records(tmp_path / "records", [example(image=bytes(16))]), records)
    for engine in ([], ["--beam", "digits"]):
        run(model, "-", "--output", tmp_path / "out.csv", *engine, lines=f"{records}\n")
        assert f"{tmp_path}/\\udcff:0,dark," in (tmp_path / "out.csv").read_text()
    # Like the output of `find -print0`.
    assert "its name holds a null" in run(model, "-", lines="\0".join(images), code=3)[1]


def test_the_three_formats_have_the_same_content(run, model, images, tmp_path):
    table, lines, parquet = (tmp_path / f"out.{ending}" for ending in ("csv", "jsonl", "parquet"))
    for path in (table, lines, parquet):
        assert run(model, *images, "--output", path)[0] == ""
    check(table.read_text(), images)
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    read = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [{"file": each["file"], "class": each["class"]} for each in read] == [
        {"file": row["file"], "class": row["class"]} for row in rows
    ]
    assert [each["scores"] for each in read] == [{name: float(row[f"score_{name}"]) for name in LABELS} for row in rows]
    written = pyarrow.parquet.read_table(parquet)
    assert written.column_names == list(rows[0])
    for name in written.column_names[2:]:
        assert written[name].to_pylist() == [float(np.float32(row[name])) for row in rows]
    assert written["class"].to_pylist() == [row["class"] for row in rows]


@pytest.mark.parametrize("top", [2, 1000])
def test_only_the_best_classes_are_written(run, model, images, tmp_path, top):
    written = run(model, *images, "--top", top)[0]
    rows = list(csv.reader(io.StringIO(written)))
    count = min(top, 3)
    assert rows[0] == ["file", "class", "score", "class2", "score2", "class3", "score3"][: 1 + 2 * count]
    for row, pixels in zip(rows[1:], images.values()):
        scores = probabilities(pixels)
        best = np.argsort(-scores)[:count]
        assert row[1::2] == [LABELS[each] for each in best]
        assert [float(each) for each in row[2::2]] == pytest.approx(scores[best], abs=1e-6)
    run(model, *images, "--top", top, "--output", tmp_path / "top.jsonl")
    for line, row in zip((tmp_path / "top.jsonl").read_text().splitlines(), rows[1:]):
        assert list(json.loads(line)["scores"].items()) == [
            (name, float(row[2 * n + 2])) for n, name in enumerate(row[1::2])
        ]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_output_file_is_complete_or_unchanged(run, model, images, tmp_path, ending):
    output = tmp_path / f"out.{ending}"
    output.write_text("before")
    other = write_records(tmp_path / "other", [example(other=1)] * 2)
    stderr = run(model, other, *images, "--output", output, "--batch-size", 2, code=3)[1]
    assert f"takes none of 2 examples from {other}:0 on: " in stderr
    assert "Feature: image (data type: string) is required but could not be found." in stderr
    assert output.read_text() == "before"
    assert "nothing was written" in run(model, tmp_path / "gone.png", "--output", output, code=3)[1]
    assert output.read_text() == "before"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["images", "other", output.name]


def test_beam_writes_the_same_file(run, model, images, tmp_path, monkeypatch):
    # Two images per part.
    monkeypatch.setattr(on_beam, "_IMAGES", 2)
    records = write_records(tmp_path / "records", [example(image=bytes([level] * 16)) for level in (0, 200)])
    (tmp_path / "images" / "a.broken.png").write_bytes(b"no image")
    here, there = tmp_path / "here.csv", tmp_path / "there.csv"
    args = (model, tmp_path / "images", records, "--batch-size", 2)
    stderr = run(*args, "--output", here, code=3)[1]
    assert run(*args, "--output", there, "--beam", "digits", code=3)[1].splitlines()[0] == stderr.splitlines()[0]
    assert there.read_text() == here.read_text()
    assert len(here.read_text().splitlines()) == 6
    before = sorted(each.name for each in tmp_path.iterdir())
    other = write_records(tmp_path / "images" / "other", [example(other=1)] * 2)
    # The model refuses the examples of the last file; the rest are predicted, with Beam and without.
    for output, engine in ((here, []), (there, ["--beam", "digits"])):
        stderr = run(*args, "--output", output, *engine, code=3)[1]
        assert f"damaged file {other}:1: the model does not take it: " in stderr
        assert "3 could not be read" in stderr
        assert len(output.read_text().splitlines()) == 6
        assert "nothing was written" in run(model, other, "--output", output, *engine, code=3)[1]
    assert there.read_text() == here.read_text()
    assert sorted(each.name for each in tmp_path.iterdir()) == before
    assert "--beam needs --output" in run(*args, "--beam", "digits", code=2)[1]


def test_an_unblessed_model_is_noted_first(run, model, images, tmp_path, monkeypatch):
    found = replace(found_model.find(model), blessed=False)
    monkeypatch.setattr(found_model, "find", lambda _: found)
    lines = run(model, tmp_path / "gone.png", *images, code=3)[1].splitlines()
    assert lines[0] == f"{model}/10 is not blessed"
    assert f"model  {model}/10, which is not blessed" in lines


def test_a_softmax_of_the_scores_is_noted_once(run, tmp_path, monkeypatch):
    class Points(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, SIDE, SIDE, 1], tf.uint8, "images")])
        def answer(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
            first = tf.cast(images, tf.float32)[:, 0, 0]
            return {"points": tf.concat([first, 1 - first], 1)}

    module, model, names = Points(), tmp_path / "model", []
    tf.saved_model.save(module, str(model), module.answer)
    for level in (2, 1):
        names.append(tmp_path / f"{level}.png")
        Image.fromarray(np.full((SIDE, SIDE), level, np.uint8)).save(names[-1])
    monkeypatch.setattr(on_beam, "_IMAGES", 1)
    output = tmp_path / "out.csv"
    for engine in ([], ["--beam", "digits"]):
        stderr = run(model, *names, "--batch-size", 1, "--output", output, *engine)[1]
        assert stderr.count("The probabilities are a softmax of the served points.") == 1
        # Alone, the second batch of 1 and 0 could be probabilities.
        scores = [float(row["score_0"]) for row in csv.DictReader(io.StringIO(output.read_text()))]
        assert scores == pytest.approx([1 / (1 + np.exp(-3)), 1 / (1 + np.exp(-1))], abs=1e-6)


@pytest.mark.parametrize(
    ("second", "words", "why"),
    # The model reshapes to [-1, ...].
    [({"other": 1}, (), ""), ({"image": bytes(32)}, ("--batch-size", 1), "it returns [2, 3] for 1")],
)
def test_an_example_that_the_model_refuses_or_predicts_twice_is_reported(run, model, tmp_path, second, words, why):
    whole = example(image=bytes(16))
    records = write_records(tmp_path / "records", [whole, example(**second), whole])
    found, stderr = run(model, records, *words, code=3)
    dark = np.zeros((SIDE, SIDE, 1), np.uint8)
    check(found, {f"{records}:0": dark, f"{records}:2": dark})
    assert f"damaged file {records}:1: the model does not take it: {why}" in stderr


def test_a_model_of_float_images_needs_the_range_of_pixels(run, images, tmp_path):
    model = save(tmp_path / "model", names=False, serving_default="from_floats")
    assert "--pixels LOW,HIGH" in run(model, *images, code=2)[1]
    found = run(model, *images, "--pixels", "0,1")[0]
    check(found, {name: read_image(Path(name), 3, None) for name in images}, labels=None)


def test_a_model_with_a_fixed_batch_size_gets_full_batches(run, images, tmp_path):
    module = Brightness()
    pair = tf.TensorSpec([2, SIDE, SIDE, 1], tf.uint8, "images")
    tf.saved_model.save(
        module,
        str(tmp_path / "pairs"),
        tf.function(lambda images: module.from_images(images)).get_concrete_function(pair),
    )
    check(run(tmp_path / "pairs", *images)[0], images)


@pytest.mark.parametrize("damage", ["saved_model.pb", "variables/variables.index", "variables"])
def test_an_incomplete_model_is_refused(run, model, images, tmp_path, damage):
    copy = tmp_path / "copy"
    shutil.copytree(f"{model}/10", copy)
    if damage == "variables":
        shutil.rmtree(copy / damage)
    else:
        (copy / damage).write_bytes(b"\xff" * 50)
    stderr = run(copy, *images, "--output", tmp_path / "out.csv", code=6)[1]
    assert f"{copy}" in stderr
    assert "copy it again" in stderr
    assert not (tmp_path / "out.csv").exists()


def test_nothing_to_predict_is_an_error(run, model, tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    assert "there is nothing to predict" in run(model, tmp_path, "--output", tmp_path / "out.csv", code=3)[1]
    assert not (tmp_path / "out.csv").exists()


def test_a_signature_can_be_chosen_and_must_take_the_input(run, model, images, tmp_path):
    assert run(model, *images, "--signature", "images:probabilities")[0] == run(model, *images)[0]
    stderr = run(model, *images, "--signature", "none", code=2)[1]
    assert "one of serving_default, images" in stderr
    records = write_records(tmp_path / "records", [example(image=bytes(16))])
    stderr = run(f"{model}/9", records, code=2)[1]
    assert "takes no tf.Examples" in stderr
    assert "serving_default (images: uint8 [-1, 4, 4, 1])" in stderr
    only = save(tmp_path / "only", serving_default="from_examples")
    assert "takes no images" in run(only, *images, code=2)[1]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["nowhere", "x.png"], "there is no such folder"),
        (["MODEL", "x.png", "--output", "x.txt"], "ends in .csv, .jsonl, .parquet"),
        (["MODEL", "x.png", "--top", "0"], "--top 0"),
        (["MODEL", "x.png", "--pixels", "0"], "--pixels 0"),
        (["MODEL", "x.png", "--pixels", "0,1"], "leave it out"),
    ],
)
def test_wrong_arguments_are_refused(run, model, words, text):
    words = [model if word == "MODEL" else word for word in words]
    assert text in run(*words, code=2)[1]
