"""Images in separate files: folders by class, and tables of paths and labels."""

from __future__ import annotations

import csv
import os
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.sizes import opened, read_all, split_sizes
from tests.data.sources.conftest import SHADES, bytes_of, fill, read_one, save
from tests.folders import write_files
from tests.refusals import refused
from tfx_estimator.data.sources import image_files
from tfx_estimator.pipeline.base.errors import DamagedDataError, DataError, DataNotFoundError


def test_a_folder_by_class_is_one_split_with_mixed_classes(tmp_path):
    source = opened(fill(tmp_path / "pets"))
    assert (source.info.name, source.info.label_names, source.info.image_shape) == ("pets", ("cat", "dog"), (4, 6, 3))
    assert split_sizes(source) == {"train": 20}
    pairs = read_all(source)
    assert {(int(image.max()), label) for image, label in pairs} == {
        (shade + number, label) for label, shade in enumerate(SHADES.values()) for number in range(10)
    }
    labels = [label for _, label in pairs]
    assert labels != sorted(labels)
    for part in ("train[:50%]", "train[50%:]"):
        (examples,) = source.resolve(part)
        assert {label for _, label in source.read(examples)} == {0, 1}


def test_the_order_is_the_same_elsewhere_and_a_new_file_leaves_it(tmp_path):
    folder = fill(tmp_path / "pets")
    before = [(image.tobytes(), label) for image, label in read_all(opened(folder))]
    moved = folder.rename(tmp_path / "moved")
    assert [(image.tobytes(), label) for image, label in read_all(opened(moved))] == before
    save(moved / "cat" / "new.png", np.full((4, 6, 3), 255, np.uint8))
    after = [(image.tobytes(), label) for image, label in read_all(opened(moved))]
    assert [pair for pair in after if pair[0][0] != 255] == before


def test_splits_are_folders_above_the_classes(tmp_path):
    for split, count in (("train", 6), ("test", 3)):
        fill(tmp_path / split, count)
    (tmp_path / ".cache").mkdir()
    write_files(tmp_path / "train" / "cat", {".DS_Store": "", "sources.txt": ""})
    source = opened(tmp_path)
    assert split_sizes(source) == {"train": 12, "test": 6}
    assert {
        label for parts in source.resolve_disjoint().values() for part in parts for _, label in source.read(part)
    } == {0, 1}
    expected = "test (6 examples), train (12 examples)"
    with refused(DataNotFoundError, "Unknown split 'validation'", expected=expected):
        source.resolve("validation")


def test_a_note_names_ignored_files_except_those_of_tools(tmp_path):
    folder = fill(tmp_path / "pets", 2)
    opened(folder)
    names = ["._1.png", ".DS_Store", "__MACOSX/cat/1.png", ".ipynb_checkpoints/1.png", "cat/._0.png", "cat/Thumbs.db"]
    names += ["README.md", ".cache/1.png", "cat/.0.png", "dog/sources"]
    write_files(folder, {name: bytes_of("PNG") if name.endswith(".png") else "text" for name in names})
    source = opened(folder)
    assert split_sizes(source) == {"train": 4}
    hidden, others = source.notes()
    assert hidden.endswith(f": .cache, cat/.0.png of {folder}")
    assert others.endswith(f": README.md, dog/sources of {folder}")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda folder: save(folder / "test" / "bird" / "1.png", np.zeros((4, 6, 3), np.uint8)), "the class 'bird'"),
        (lambda folder: shutil.rmtree(folder / "train" / "cat"), "the class 'cat', but 'train' does not"),
        (lambda folder: [shutil.rmtree(folder / split / "cat") for split in ("train", "test")], "one class only: dog"),
    ],
)
def test_an_error_describes_a_folder_that_cannot_be_read(tmp_path, change, text):
    for split in ("train", "test"):
        fill(tmp_path / split, 2)
    change(tmp_path)
    with refused(DataError, text) as caught:
        opened(tmp_path)
    assert caught.value.todo


def test_a_folder_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    folder = fill(tmp_path / "pets", 1)

    def refuse(place):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)  # root may read any file
    with pytest.raises(DamagedDataError, match=f"{folder}: it cannot be read: Permission denied"):
        opened(folder)


def test_images_of_different_sizes_need_image_size(tmp_path):
    folder = fill(tmp_path / "pets", 3)
    save(folder / "cat" / "large.png", np.full((16, 9, 3), 7, np.uint8))
    large = f"16 x 9 (1, first {folder}/cat/large.png)"
    with refused(DataError, "differ in size", "4 x 6 (6, first", large, todo="image_size"):
        opened(folder)
    source = opened(folder, image_size=(8, 8))
    assert source.info.image_shape == (8, 8, 3)
    assert {image.shape for image, _ in read_all(source)} == {(8, 8, 3)}
    assert sorted(int(image.max()) for image, _ in read_all(source)) == [7, 60, 61, 62, 180, 181, 182]


def test_of_sixteen_bits_the_upper_eight_are_kept(tmp_path):
    values = np.array([[0, 255, 256], [32768, 65280, 65535]], np.uint16)
    assert read_one(tmp_path, values)[..., 0].tolist() == [[0, 0, 1], [128, 255, 255]]


def test_transparency_is_laid_over_white(tmp_path):
    values = np.array([[[10, 20, 30, 255], [10, 20, 30, 0], [0, 0, 0, 128]]], np.uint8)
    assert read_one(tmp_path, values).tolist() == [[[10, 20, 30], [255, 255, 255], [127, 127, 127]]]


def _png(path: Path, samples: list, colour_type: int, depth: int, transparent: int | None = None) -> None:
    """Writes a PNG; Pillow cannot write 16-bit grey with alpha or a transparent grey."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", len(samples), 1, depth, colour_type, 0, 0, 0)
    pixels = zlib.compress(b"\0" + np.array(samples, f">u{depth // 8}").tobytes())
    chunks = [(b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")]
    if transparent is not None:
        chunks.insert(1, (b"tRNS", struct.pack(">H", transparent)))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*each) for each in chunks))


@pytest.mark.parametrize("depth", [8, 16])
def test_grey_of_sixteen_bits_is_read_as_that_of_eight(tmp_path, depth):
    one = 0x101 if depth == 16 else 1
    _png(tmp_path / "a" / "1.png", [[10 * one, 255 * one], [10 * one, 0], [0, 128 * one]], 4, depth)
    _png(tmp_path / "b" / "1.png", [10 * one, 200 * one, 200 * one + 1], 0, depth, transparent=200 * one)
    source = opened(tmp_path)
    assert source.info.image_shape == (1, 3, 1)
    found = {label: image.ravel().tolist() for image, label in read_all(source)}
    assert found == {0: [10, 255, 127], 1: [10, 255, 200 if depth == 16 else 201]}


@pytest.mark.parametrize("form", ["JPEG", "MPO"])
@pytest.mark.parametrize(
    ("orientation", "corners"), [(3, [0, 255, 0, 255]), (6, [255, 255, 0, 0]), (8, [0, 0, 255, 255])]
)
def test_a_jpeg_is_turned_as_its_orientation_says(tmp_path, form, orientation, corners):
    values = np.zeros((30, 20, 3), np.uint8)
    values[:, :10] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    # A phone adds a thumbnail, for which Pillow reports another format than JPEG.
    more = {"save_all": True, "append_images": [Image.new("RGB", (8, 8))]} if form == "MPO" else {}
    shape = (30, 20) if orientation == 3 else (20, 30)
    save(tmp_path / "a" / "1.jpg", values, format=form, exif=exif, quality=95, **more)
    save(tmp_path / "b" / "1.png", np.zeros((*shape, 3), np.uint8))
    for size in (None, (20, 20)):
        (image,) = (image for image, label in read_all(opened(tmp_path, image_size=size)) if label == 0)
        assert image[[0, 0, -1, -1], [0, -1, 0, -1], 0].tolist() == corners


def test_the_fingerprint_sees_files_and_not_places(tmp_path):
    folder = fill(tmp_path / "pets")

    def fingerprint(place=folder, *expressions):
        return opened(place).fingerprint(expressions or ["train[:90%]", "train[90%:]"])

    first = fingerprint()
    assert fingerprint(shutil.copytree(folder, tmp_path / "elsewhere" / "pets")) == first
    assert fingerprint(folder, "train[:80%]", "train[80%:]") != first
    seen = {first}
    for shade in (1, 2):
        added = save(folder / "cat" / "new.png", np.full((4, 6, 3), shade, np.uint8))
        seen.add(fingerprint())
    added.rename(folder / "dog" / "new.png")
    seen.add(fingerprint())
    (folder / "dog" / "new.png").unlink()
    assert fingerprint() == first
    (folder / "cat" / "0.png").unlink()
    seen.add(fingerprint())
    assert len(seen) == 5


def _table(path: Path, rows: list[dict], **options) -> Path:
    if path.suffix == ".parquet":
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return path


def _rows(folder: Path, **columns) -> list[dict]:
    fill(folder / "files", 3)
    paths = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.png"))
    return [{"image": path, "label": path.split("/")[1]} for path in paths]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("numbers", [False, True])
def test_a_table_of_paths_and_labels(tmp_path, suffix, numbers):
    rows = _rows(tmp_path)
    for row in rows:
        row["label"] = int(row["label"] == "dog") if numbers else row["label"]
    source = opened(_table(tmp_path / f"labels.{suffix}", rows))
    assert (source.info.name, source.info.label_names) == ("labels", ("0", "1") if numbers else ("cat", "dog"))
    assert split_sizes(source) == {"train": 6}
    assert sorted((int(image.max()), label) for image, label in read_all(source)) == [
        (60, 0), (61, 0), (62, 0), (180, 1), (181, 1), (182, 1)
    ]  # fmt: skip
    first = source.fingerprint(["train"])
    rows[0]["label"], rows[-1]["label"] = rows[-1]["label"], rows[0]["label"]
    assert opened(_table(tmp_path / f"labels.{suffix}", rows)).fingerprint(["train"]) != first


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_whole_numbers_written_as_floats_are_integers(tmp_path, suffix):
    rows = [{**row, "label": float(index // 2)} for index, row in enumerate(_rows(tmp_path))]
    source = opened(_table(tmp_path / f"labels.{suffix}", rows))
    assert source.info.label_names == ("0", "1", "2")
    assert sorted((int(image.max()), label) for image, label in read_all(source)) == [
        (60, 0), (61, 0), (62, 1), (180, 1), (181, 2), (182, 2)
    ]  # fmt: skip
    # pandas writes numbers as floats where some are missing.
    rows[3]["label"] = float("nan") if suffix == "parquet" else None
    with pytest.raises(DataError, match="row 4 has no label"):
        opened(_table(tmp_path / f"labels.{suffix}", rows))


@pytest.mark.parametrize("name", ["NA", "null", "nan", "-0"])
def test_a_class_may_have_a_name_that_pandas_reads_as_missing(tmp_path, name):
    rows = [{**row, "label": name if row["label"] == "dog" else "cat"} for row in _rows(tmp_path)]
    source = opened(_table(tmp_path / "labels.csv", rows))
    assert sorted(source.info.label_names) == sorted(["cat", name])


def test_a_table_with_splits(tmp_path):
    rows = [{**row, "split": "val" if "0.png" in row["image"] else "train"} for row in _rows(tmp_path)]
    source = opened(_table(tmp_path / "labels.csv", rows))
    assert split_sizes(source) == {"val": 2, "train": 4}
    assert sorted(int(image.max()) for image, _ in read_all(source, "val")) == [60, 180]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda rows: [{"label": row["label"]} for row in rows], "no columns named image or path"),
        (lambda rows: [{**row, "path": row["image"]} for row in rows], "2 columns named image or path"),
        (lambda rows: [{**row, "label": ""} for row in rows], "row 1 has no label"),
        (lambda rows: [*rows, rows[2]], "rows 3 and 7 name the same image, files/cat/2.png"),
        (lambda rows: [{**row, "label": 2 * index} for index, row in enumerate(rows)], "row 4 has the label 6, of 6"),
        (lambda rows: [{**row, "label": -1} for row in rows], "row 1 has the label -1"),
        (
            lambda rows: [*rows, {"image": "files/no\nne.png", "label": "cat"}],
            r"labels.csv: row 7 names files/no\nne.png, which does not exist",
        ),
        (lambda rows: [{**row, "split": row["label"]} for row in rows if row["label"] == "cat"], "one class only"),
    ],
)
def test_an_error_names_the_row_of_a_wrong_table(tmp_path, change, text):
    with refused(DataError, text, str(tmp_path)):
        opened(_table(tmp_path / "labels.csv", change(_rows(tmp_path))))


@pytest.mark.parametrize(("name", "data"), [("l.csv", b""), ("l.csv", b"image,label\n1.png\n"), ("l.parquet", b"PAR1")])
def test_an_error_names_a_file_that_is_no_table(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DamagedDataError, match=name):
        opened(tmp_path / name)


def test_each_of_ten_thousand_images_is_opened_once(tmp_path, monkeypatch):
    folder = fill(tmp_path / "pets", 1)
    for name in SHADES:
        data = (folder / name / "0.png").read_bytes()
        for number in range(1, 5_000):
            (folder / name / f"{number}.png").write_bytes(data)
    read, looked = image_files.read_header, []
    monkeypatch.setattr(image_files, "read_header", lambda path: looked.append(path) or read(path))
    assert split_sizes(opened(folder)) == {"train": 10_000}
    assert len(set(looked)) == len(looked) == 10_000
    # A pipeline opens the source again for each file that it writes.
    opened(folder)
    assert len(looked) == 10_000


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"cat/\xff0.png", r"cat/\udcff0.png: its name is not valid UTF-8"),
        (b"c\xff/1.png", r"c\udcff/1.png: its name is not valid UTF-8"),
    ],
)
def test_an_error_shows_a_name_that_is_no_text(tmp_path, name, shown):
    folder = fill(tmp_path, 1)
    path = os.fsencode(folder) + b"/" + name
    os.makedirs(os.path.dirname(path), exist_ok=True)
    shutil.copy(folder / "cat" / "0.png", path)
    with pytest.raises(DamagedDataError) as caught:
        opened(folder)
    assert shown in str(caught.value)
