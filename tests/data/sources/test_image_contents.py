"""What is in images and tables: formats, channels, equal images, labels that are none, files that are none."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.sizes import opened, read_all
from tests.data.sources.conftest import SHADES, bytes_of, fill, read_one, save
from tests.refusals import refused
from tfx_estimator.pipeline.base.errors import DamagedDataError, DataError


def test_grey_among_colours_becomes_colour_unless_declared(tmp_path):
    folder = fill(tmp_path / "pets", 3)
    grey = save(folder / "dog" / "grey.png", np.full((4, 6), 9, np.uint8))
    save(folder / "dog" / "red.png", np.full((4, 6, 3), (255, 0, 0), np.uint8))
    source = opened(folder)
    assert source.info.image_shape == (4, 6, 3)
    (note,) = source.notes()
    assert note.startswith(f"grey images, read in colour as the others: 1, first {grey}; data.channels: 3")
    pixels = {tuple(image[0, 0]) for image, _ in read_all(source)}
    assert {(9, 9, 9), (255, 0, 0)} < pixels
    declared = opened(folder, channels=3)
    assert not declared.notes()
    assert declared.fingerprint(["train"]) == source.fingerprint(["train"])
    source = opened(folder, channels=1)
    assert source.info.image_shape == (4, 6, 1)
    assert not source.notes()
    # ITU-R 601-2, as Pillow has it.
    assert {9, 76} < {int(image[0, 0, 0]) for image, _ in read_all(source)}


@pytest.mark.parametrize(
    ("name", "form", "options"),
    [("1.webp", "WEBP", {"lossless": True}), ("1.jpg", "WEBP", {"lossless": True}), ("1.bmp", "BMP", {}),
     ("1.gif", "GIF", {}), ("1.png", "GIF", {}), ("image", "BMP", {})],
)  # fmt: skip
def test_formats_are_recognised_by_content(tmp_path, name, form, options):
    values = np.array([[[10, 20, 30], [0, 0, 0]], [[255, 255, 255], [200, 0, 7]]], np.uint8)
    assert (read_one(tmp_path, values, name, format=form, **options) == values).all()
    assert {key: len(files) for key, files in opened(tmp_path).contents.formats.items()} == {form: 1, "PNG": 1}


def test_transparency_of_a_gif_and_a_webp_is_laid_over_white(tmp_path):
    values = np.array([[[10, 20, 30, 255], [10, 20, 30, 0]]], np.uint8)
    for name, options in (("1.gif", {}), ("2.webp", {"lossless": True})):
        assert read_one(tmp_path / name, values, name, **options).tolist() == [[[10, 20, 30], [255, 255, 255]]]


def _heic(size: int = 200) -> bytes:
    return b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(size)


def _animated(form: str) -> bytes:
    frames = [Image.new("RGB", (6, 4), colour) for colour in ("red", "blue")]
    buffer = io.BytesIO()
    frames[0].save(buffer, form, save_all=True, append_images=frames[1:])
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("a.heic", _heic(), "is an image in the format HEIC"),
        ("a.jpg", _heic(), "is an image in the format HEIC"),
        ("a.tif", bytes_of("TIFF"), "is an image in the format TIFF"),
        ("a.svg", b"<svg/>", "is an image in the format SVG"),
        ("a.gif", _animated("GIF"), "is an animated GIF"),
        ("a.png", _animated("WEBP"), "is an animated WEBP"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_image_of_another_format_is_named_with_what_to_do(tmp_path, name, data, what):
    folder = fill(tmp_path / "pets", 1)
    (folder / "cat" / name).write_bytes(data)
    with pytest.raises(DataError) as caught:
        opened(folder)
    assert caught.value.what == f"{folder}/cat/{name} {what}"
    assert not isinstance(caught.value, DamagedDataError)
    advice = " of all such files, as ImageMagick's `mogrify -format png` does, and remove these"
    assert "format" not in what or caught.value.todo.endswith(advice)


@pytest.mark.parametrize("form", ["WEBP", "BMP", "GIF"])
def test_a_damaged_file_of_any_format_is_named(tmp_path, form):
    random = np.random.default_rng(1)
    whole = io.BytesIO()
    Image.fromarray(random.integers(0, 256, (20, 30, 3), np.uint8)).save(whole, form)
    folder = tmp_path / "pets"
    for name in SHADES:
        (folder / name).mkdir(parents=True)
        (folder / name / "1.img").write_bytes(whole.getvalue())
    (folder / "cat" / "1.img").write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    with pytest.raises(DamagedDataError, match=f"{folder}/cat/1.img: it (cannot be decoded|is no complete)"):
        read_all(opened(folder))


def test_equal_images_in_two_splits_and_in_two_classes_are_counted(tmp_path):
    fill(tmp_path / "train", 6)
    fill(tmp_path / "test", 6)
    for number in range(2):
        save(tmp_path / "test" / "cat" / f"{number}.png", np.full((4, 6, 3), number, np.uint8))
    for name in ("also", "again"):
        shutil.copy(tmp_path / "train" / "dog" / "3.png", tmp_path / "test" / "cat" / f"{name}.png")
    source = opened(tmp_path)
    assert source.notes() == ()
    notes = source.notes(["train", "test"])
    in_two_splits, in_two_classes = sorted(notes, reverse=True)
    assert in_two_splits.startswith("of the 14 images of test also in train, byte for byte: 12, as ")
    # One image, however many its copies are.
    assert in_two_classes.startswith("also in another class, byte for byte: 1, as ")
    assert in_two_classes.endswith(f".png and {tmp_path}/train/dog/3.png")
    source.fingerprint(["train", "test"])
    assert source.notes(["train", "test"]) == opened(tmp_path).notes(["train", "test"]) == notes
    # One split by its numbers: all differ.
    assert source.notes(["train[:50%]", "train[50%:]"]) == ()


@pytest.mark.unit
@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["pets/cat/pipe.png", "labels.csv", "train-images-idx3-ubyte"])
def test_a_pipe_is_no_file(tmp_path, name):
    fill(tmp_path / "pets", 1)
    os.mkfifo(tmp_path / name)
    (tmp_path / "train-labels-idx1-ubyte").touch()
    place = {"pets/cat/pipe.png": tmp_path / "pets", "labels.csv": tmp_path / name}.get(name, tmp_path)
    with pytest.raises(DataError):
        opened(place)


def _table(folder: Path, labels: list, encoding: str = "utf-8") -> Path:
    rows = [f"{number}.png,{label}" for number, label in enumerate(labels)]
    for number in range(len(labels)):
        save(folder / f"{number}.png", np.full((4, 6, 3), number, np.uint8))
    table = folder / "labels.csv"
    table.write_bytes("\n".join(["image,label", *rows]).encode(encoding))
    return table


@pytest.mark.parametrize(("encoding", "named"), [("latin-1", "LATIN1"), ("utf-16", "UTF-16")])
def test_a_table_in_another_encoding_is_named_with_the_command_that_converts_it(tmp_path, encoding, named):
    table = _table(tmp_path, ["größe", "näher"], encoding)
    with refused(DataError, f"{table} is not text in UTF-8, but probably in {named}") as caught:
        opened(table)
    command = caught.value.todo.split("`")[1].replace("OLD", str(table)).replace("NEW", str(tmp_path / "new.csv"))
    assert os.system(command) == 0
    assert opened(tmp_path / "new.csv").info.label_names == ("größe", "näher")


@pytest.mark.parametrize("written", ["NaN", "None", "nan", "NULL"])
def test_no_value_among_numbers_is_no_class_and_among_names_is_told(tmp_path, written):
    with pytest.raises(DataError, match=f"labels.csv: row 3 has no label, but '{written}'"):
        opened(_table(tmp_path, [0, 1, written, 1]))
    source = opened(_table(tmp_path, ["cat", "dog", written, written]))
    assert written in source.info.label_names
    (note,) = source.notes()
    assert note == f"rows of {tmp_path}/labels.csv of the class '{written}', or of none: 2"


def _parquet(path: Path, columns: dict) -> Path:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table(columns), path)
    return path


def test_a_column_of_bool_is_two_classes(tmp_path):
    _table(tmp_path, [0, 1, 0])
    table = _parquet(tmp_path / "l.parquet", {"image": ["0.png", "1.png", "2.png"], "label": [True, False, True]})
    source = opened(table)
    assert source.info.label_names == ("False", "True")
    assert sorted((int(image.max()), label) for image, label in read_all(source)) == [(0, 1), (1, 0), (2, 1)]


@pytest.mark.parametrize("kind", ["struct", "bytes", "paths"])
def test_images_in_a_table_are_read_like_files(tmp_path, kind):
    _table(tmp_path, [0, 1, 0, 1])
    names = [f"{number}.png" for number in range(4)]
    content = [(tmp_path / name).read_bytes() for name in names]
    cells = {
        "struct": [{"bytes": data, "path": "same.png"} for data in content],
        "bytes": content,
        "paths": [{"bytes": None, "path": name} for name in names],
    }[kind]
    table = _parquet(tmp_path / "train.parquet", {"image": cells, "label": [0, 1, 0, 1]})
    source = opened(table)
    pairs = [(0, 0), (1, 1), (2, 0), (3, 1)]
    assert sorted((int(image.max()), label) for image, label in read_all(source)) == pairs
    found = source.fingerprint(["train"])
    if kind != "paths":
        # The same bytes twice, in two classes.
        cells[1] = cells[0]
        changed = opened(_parquet(tmp_path / "more.parquet", {"image": cells, "label": [0, 1, 0, 1]}))
        assert changed.fingerprint(["train"]) != found
        (note,) = changed.notes(["train"])
        assert note.startswith("also in another class, byte for byte: 1, as ")
        for name in names:
            (tmp_path / name).unlink()
        assert len(read_all(opened(table))) == 4
    # An image that is missing, or damaged.
    cells[2] = None if kind != "struct" else {"bytes": b"\xff\xd8\xff", "path": None}
    with pytest.raises(DataError, match=r"row 3 has no image|bad.parquet:2: it is no complete JPEG"):
        opened(_parquet(tmp_path / "bad.parquet", {"image": cells, "label": [0, 1, 0, 1]}))
