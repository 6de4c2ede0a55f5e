"""Folders of images as people have them: what is read, what is left out, and that each suggestion leads there."""

from __future__ import annotations

import io
import re
import time

import numpy as np
import pytest
import yaml
from PIL import Image

from tests.data.sizes import opened
from tests.folders import write_files
from tfx_estimator.data.sources import open_source
from tfx_estimator.pipeline.base.errors import DataError, DeclarationError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.user_data.folder import read_folder

TWELVE = {"cat": 12, "dog": 12}
# Folder -> number of images in it; then what is read of them, and what is left out.
TREES = {
    "classes": (TWELVE, {"train": TWELVE}),
    "classes of folders": ({"cat/kaggle": 4, "cat/wild/far": 8, "dog/kaggle": 12}, {"train": TWELVE}),
    "a class named as a split": ({"train": 12, "car": 12}, {"train": {"car": 12, "train": 12}}),
    "a class named as a split, among others": (
        {"train": 12, "car": 12, "bus": 12},
        {"train": {"bus": 12, "car": 12, "train": 12}},
    ),
    "a test split without labels, beside the classes": (
        {"cat": 12, "dog": 12, "test": 5},
        {"train": TWELVE},
        "test (5 images)",
    ),
    "classes almost named as splits": (
        {"test_tube/a": 6, "test_tube/b": 6, "flask/a": 6, "flask/b": 6},
        {"train": {"flask": 12, "test_tube": 12}},
    ),
    "splits": (
        {"train/cat": 12, "train/dog": 12, "test/cat": 3, "test/dog/far": 4},
        {"test": {"cat": 3, "dog": 4}, "train": TWELVE},
    ),
    "three splits": (
        {f"{split}/{name}": 12 for split in ("train", "valid", "test") for name in ("cat", "dog")},
        {"test": TWELVE, "train": TWELVE, "valid": TWELVE},
    ),
    "a test split without classes": (
        {"train/cat": 12, "train/dog": 12, "val/cat": 12, "val/dog": 12, "test": 5},
        {"train": TWELVE, "val": TWELVE},
        "test (5 images)",
    ),
    "a test split without classes, for Keras": (
        {"train/cat": 12, "train/dog": 12, "test/unknown": 5},
        {"train": TWELVE},
        "test (5 images)",
    ),
    "splits by other names": (
        {"Training/cat": 12, "Training/dog": 12, "Testing/cat": 2, "Testing/dog": 3},
        {"Testing": {"cat": 2, "dog": 3}, "Training": TWELVE},
    ),
    "splits of a year, and one of no usual name": (
        {f"{split}/{name}": 12 for split in ("train2017", "val2017", "extra") for name in ("cat", "dog")},
        {"extra": TWELVE, "train2017": TWELVE, "val2017": TWELVE},
    ),
    "splits in archives' own folders": (
        {f"seg_{s}/seg_{s}/{name}": 12 for s in ("train", "test") for name in ("cat", "dog")}
        | {"seg_pred/seg_pred": 4},
        {"seg_test": TWELVE, "seg_train": TWELVE},
        "seg_pred (4 images)",
    ),
    "splits with a space": (
        {f"{split} set/{name}": 12 for split in ("training", "test") for name in ("cat", "dog")},
        {"test_set": TWELVE, "training_set": TWELVE},
    ),
    "a mounted disk, a NAS, Windows": (
        {"cat": 12, "dog": 12, "cat/@eaDir/1.png": 3, "$RECYCLE.BIN": 2, "lost+found": 0, "#recycle/cat": 1},
        {"train": TWELVE},
    ),
    "images and files beside the classes": (
        {"cat": 12, "dog": 12, ".": 1, "empty": 0, ".cache": 1, "boxes": {"1.xml": "<a/>", "2.xml": "<a/>"}},
        {"train": TWELVE},
        ".cache",
        "0.png",
        "boxes",
        "empty",
    ),
    "an evaluation split that lacks a class": (
        {"train/cat": 12, "train/dog": 12, "val/cat": 3},
        {"train": TWELVE, "val": {"cat": 3, "dog": 0}},
    ),
}


def _image(number: int, suffix: str = "png") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((4, 6, 3), number, np.uint8)).save(buffer, suffix)
    return buffer.getvalue()


def _grow(folder, tree):
    for name, held in tree.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        write_files(folder / name, held if isinstance(held, dict) else {f"{n}.png": _image(n) for n in range(held)})
    return folder


def _counts(source):
    names = source.info.label_names
    return {
        split: {name: each[label] for label, name in enumerate(names)} for split, each in source.count_classes().items()
    }


def _check(section, expected):
    """Opens a suggested section: it holds what is expected, and trains and evaluates on what there is."""
    source = open_source(section)
    assert dict(sorted(_counts(source).items())) == expected
    ranges = source.resolve_disjoint()
    held = {split: {label for part in parts for _, label in source.read(part)} for split, parts in ranges.items()}
    assert held["train"] == set(range(source.info.num_classes))
    assert held["eval"]


@pytest.mark.parametrize("tree", TREES)
def test_what_is_read_and_what_is_left_out(tmp_path, tree):
    files, expected, *left_out = TREES[tree]
    found = read_folder(_grow(tmp_path / "pets", files))
    assert found.refusal is None
    counts = {split: {name: len(each.get(name, ())) for name in found.classes} for split, each in found.files.items()}
    assert dict(sorted(counts.items())) == expected
    assert sorted(name for each in found.left_out.values() for name in each) == left_out


@pytest.mark.parametrize("tree", TREES)
def test_what_the_verb_suggests_reads_it(tmp_path, cli, tree):
    files, expected, *left_out = TREES[tree]
    output = cli("data", str(_grow(tmp_path / "pets", files))).out
    assert all(each in output for each in left_out)
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ntrainer: {model: cifar_cnn, train_steps: 1}\n" + output[output.index("data:\n") :]
    )
    _check(load(tmp_path / "mine.yaml").declaration.data, expected)


@pytest.mark.parametrize("test", ["", ", test: nor_here"])
@pytest.mark.parametrize("tree", TREES)
def test_what_validate_suggests_for_wrong_splits_reads_it(tmp_path, tree, test):
    files, expected, *_ = TREES[tree]
    _grow(tmp_path / "pets", files)
    text = "name: mine\ntrainer: {model: cifar_cnn, train_steps: 1}\ndata:\n  dataset: ./pets\n  "
    declaration = tmp_path / "mine.yaml"
    declaration.write_text(f"{text}splits: {{train: nowhere, eval: not_here{test}}}\n")
    with pytest.raises(DeclarationError) as caught:
        load(declaration)
    (suggested,) = set(re.findall(r"to do:    set (splits: .*)", str(caught.value)))
    assert ("test" in yaml.safe_load(suggested)["splits"]) == bool(test)
    declaration.write_text(text + suggested)
    _check(load(declaration).declaration.data, expected)


def test_folders_are_splits_if_the_declaration_says_so(tmp_path):
    names = [f"{fold}/{name}" for fold in ("one", "two") for name in ("cat", "dog")]
    _grow(tmp_path, dict.fromkeys(names, 3))
    assert opened(tmp_path).info.label_names == ("one", "two")
    source = opened(tmp_path, splits={"train": "one", "eval": "two[:50%]"})
    assert _counts(source) == {"one": {"cat": 3, "dog": 3}, "two": {"cat": 3, "dog": 3}}


def test_the_suggestion_for_a_folder_around_the_classes_reads_them(tmp_path, cli):
    _grow(tmp_path, {"PetImages/Cat": 12, "PetImages/Dog": 12})
    (suggested,) = re.findall("set data.dataset to (.*)", cli("data", str(tmp_path), code=DataError.exit_code).err)
    assert _counts(opened(suggested)) == {"train": {"Cat": 12, "Dog": 12}}


def test_the_suggestion_for_a_folder_with_a_table_of_its_images_reads_them(tmp_path, cli):
    rows = "".join(f"images/{number}.png,{'cat' if number % 2 else 'dog'}\n" for number in range(12))
    _grow(tmp_path, {"images": 12, ".": {"a_submission.csv": "id,label\n1,cat\n", "train.csv": f"image,label\n{rows}"}})
    (suggested,) = re.findall("set data.dataset to (.*)", cli("data", str(tmp_path), code=DataError.exit_code).err)
    assert _counts(opened(suggested)) == {"train": {"cat": 6, "dog": 6}}


@pytest.mark.parametrize(
    ("folder", "expected"), [("images", "two classes or more"), (".", "a folder for each class, or a table")]
)
def test_a_parquet_file_of_unknown_columns_is_named_and_not_suggested(tmp_path, cli, folder, expected):
    _grow(tmp_path, {folder: 12})
    write_files(tmp_path, {"boxes.parquet": b"PAR1"})
    output, error = cli("data", str(tmp_path), code=DataError.exit_code)
    assert "left out (not an image): boxes.parquet of " in output
    assert f"  expected: {expected}\n" in error
    assert "set data.dataset" not in error


def test_the_suggestion_for_images_of_several_sizes_reads_them(tmp_path, cli):
    _grow(tmp_path / "pets", {"cat": 12, "dog": 12})
    Image.new("RGB", (30, 20)).save(tmp_path / "pets" / "cat" / "0.png")
    output = cli("data", str(tmp_path / "pets")).out
    section = yaml.safe_load(output[output.index("data:\n") :])["data"]
    assert opened(**section).info.image_shape == (64, 64, 3)


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        ({".": 3}, "no data set in a known format; it holds 0.png, 1.png, 2.png"),
        ({"cat": 3}, "one class only: cat"),
        # As Kaggle's dogs-vs-cats, whose classes are in the names of files.
        ({"train": 3, "test1": 2}, r"it holds test1 \(2 images\), train \(3 images\)"),
        ({"train/cat": 3, "train/dog": 3, "test/cat": 3, "test/bird": 1}, "the class 'bird', but 'train' does not"),
        ({"notes": {"1.txt": "a"}}, "no data set in a known format; it holds notes"),
    ],
)
def test_validate_and_the_source_refuse_alike(tmp_path, tree, text):
    _grow(tmp_path / "pets", tree)
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ntrainer: {model: cifar_cnn, train_steps: 1}\ndata: {dataset: ./pets}\n"
    )
    for call, error in (
        (lambda: opened(tmp_path / "pets"), DataError),
        (lambda: load(tmp_path / "mine.yaml"), DeclarationError),
    ):
        with pytest.raises(error, match=text):
            call()


def test_files_by_another_suffix_are_opened(tmp_path):
    suffixes = {"cat": {f"{n}.jfif": _image(n, "jpeg") for n in range(3)}, "dog": {str(n): _image(n) for n in range(4)}}
    suffixes["cat"] |= {f"{n}.txt": "a" for n in range(3)}
    found = read_folder(_grow(tmp_path, suffixes))
    assert {name: len(each) for name, each in found.files["train"].items()} == {"cat": 3, "dog": 4}
    assert found.left_out == {"not an image": [f"cat/{n}.txt" for n in range(3)]}


def test_ten_thousand_images_are_listed_within_a_second(tmp_path):
    (tmp_path / "train").mkdir()
    for name in ("cat", "dog"):
        folder = tmp_path / "train" / name
        folder.mkdir()
        for number in range(5_000):
            (folder / f"{number}.jpg").touch()
    start = time.process_time()
    assert [len(each) for each in read_folder(tmp_path).files["train"].values()] == [5_000, 5_000]
    assert time.process_time() - start < 0.5


def test_a_link_to_a_folder_above_is_read_once(tmp_path):
    _grow(tmp_path, {"cat": 3, "dog": 3})
    (tmp_path / "cat" / "up").symlink_to(tmp_path)
    (tmp_path / "bird").symlink_to(tmp_path / "bird")
    found = read_folder(tmp_path)
    assert {name: len(each) for name, each in found.files["train"].items()} == {"cat": 3, "dog": 3}
