"""Files damaged in every known way: the error names the file, or the examples are unchanged."""

from __future__ import annotations

import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.artifacts import write_records
from tests.data.sizes import opened
from tests.data.sources.conftest import save, write_builder, write_idx
from tfx_estimator.pipeline.base.errors import DataError

Damage = Callable[[Path], None]


def _read(folder: Path) -> tuple:
    """Reads all that a pipeline reads from a data set, in the same order."""
    table = folder / "labels.csv"
    source = opened(table if folder.name == "table" else folder)
    source.prepare()
    info = source.info
    ranges = source.resolve_disjoint().values()
    source.fingerprint(["train", "test"])
    examples = [(image.tobytes(), label) for parts in ranges for part in parts for image, label in source.read(part)]
    return info.label_names, info.image_shape, examples


def _cut(share: float) -> Damage:
    return lambda path: path.write_bytes(path.read_bytes()[: int(len(path.read_bytes()) * share)])


def _flip(place: float, bit: int = 4) -> Damage:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(place) if place >= 1 else int(len(data) * place)] ^= 1 << bit
        path.write_bytes(data)

    return flip


def _append(data: bytes) -> Damage:
    return lambda path: path.write_bytes(path.read_bytes() + data)


def _write(data: bytes) -> Damage:
    return lambda path: path.write_bytes(data)


def _replace(old: bytes, new: bytes) -> Damage:
    def replace(path: Path) -> None:
        assert old in path.read_bytes()
        path.write_bytes(path.read_bytes().replace(old, new))

    return replace


def _header(path: Path, width: int, height: int) -> None:
    """Writes another size into a PNG, with the right checksum."""
    data = path.read_bytes()
    chunk = b"IHDR" + struct.pack(">II", width, height) + data[24:29]
    path.write_bytes(data[:12] + chunk + struct.pack(">I", zlib.crc32(chunk)) + data[33:])


def _huge(path: Path) -> None:
    _header(path, 200_000, 200_000)


def _taller(path: Path) -> None:
    _header(path, 30, 21)


# Damages of any file.
_ANY: dict[str, Damage] = {
    "empty": _write(b""),
    "cut in the middle": _cut(0.5),
    "cut at the end": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "missing": Path.unlink,
}


def _records(change: Callable[[list[bytes]], list[bytes]]) -> Damage:
    def damage(path: Path) -> None:
        records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
        write_records(path, change(records))

    return damage


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An undamaged data set of each kind."""
    home = tmp_path_factory.mktemp("whole")
    random = np.random.default_rng(1)
    folders = {name: home / name for name in ("idx", "idx_gz", "cifar")}
    for folder in folders.values():
        folder.mkdir()
    for prefix, count in (("train", 40), ("t10k", 20)):
        images = random.integers(0, 256, (count, 6, 5), np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
            write_idx(folders["idx"] / f"{prefix}-{kind}-ubyte", values)
            write_idx(folders["idx_gz"] / f"{prefix}-{kind}-ubyte.gz", values)
    for name in ("data_batch_1", "data_batch_2", "test_batch"):
        records = random.integers(0, 256, (7, 3073), np.uint8)
        records[:, 0] %= 10
        (folders["cifar"] / f"{name}.bin").write_bytes(records.tobytes())
    (folders["cifar"] / "batches.meta.txt").write_text("\n".join("abcdefghij"))
    with pytest.MonkeyPatch.context() as patch:
        opened(write_builder(home, patch, name="Flat"), data_dir=str(home / "tensorflow_datasets")).prepare()
    folders["tfds"] = home / "tensorflow_datasets" / "flat" / "1.0.0"
    folders["images"] = home / "images"
    for split, count in (("train", 4), ("test", 2)):
        for name, form in (("a", "png"), ("b", "jpg")):
            for number in range(count):
                values = random.integers(0, 256, (20, 30, 3), np.uint8)
                save(folders["images"] / split / name / f"{number}.{form}", values)
    folders["table"] = home / "table"
    shutil.copytree(folders["images"], folders["table"] / "files")
    files = sorted((folders["table"] / "files").rglob("*.*"))
    rows = [f"{path.relative_to(folders['table'])},{path.parts[-2]},{path.parts[-3]}" for path in files]
    (folders["table"] / "labels.csv").write_text("\n".join(["image,label,split", *rows]) + "\n")
    return folders


@pytest.fixture(scope="module")
def undamaged(kinds: dict[str, Path]) -> dict[str, tuple]:
    """The contents of each undamaged data set."""
    return {name: _read(folder) for name, folder in kinds.items()}


_TFRECORD = "flat-train.tfrecord-00000-of-00001"
_DAMAGES: list[tuple[str, str, str, Damage]] = [
    *(
        (kind, file, name, damage)
        for kind, file in (
            ("idx", "train-images-idx3-ubyte"),
            ("idx", "t10k-labels-idx1-ubyte"),
            ("idx_gz", "train-images-idx3-ubyte.gz"),
            ("cifar", "data_batch_2.bin"),
            ("tfds", "dataset_info.json"),
            ("tfds", "features.json"),
            ("tfds", _TFRECORD),
            ("images", "train/a/1.png"),
            ("images", "test/b/0.jpg"),
            ("table", "labels.csv"),
            ("table", "files/train/a/0.png"),
        )
        for name, damage in _ANY.items()
        # Cannot be recognised as damages: a data set with a file less, with seven black aeroplanes.
        if (file, name)
        not in (
            ("data_batch_2.bin", "missing"),
            ("data_batch_2.bin", "zeros"),
            ("train/a/1.png", "missing"),
            ("test/b/0.jpg", "missing"),
        )
    ),
    ("idx", "train-images-idx3-ubyte", "another type", _flip(2)),
    ("idx", "train-images-idx3-ubyte", "no magic", _flip(0)),
    ("idx", "train-images-idx3-ubyte", "another count", _flip(7, 0)),
    ("idx", "train-images-idx3-ubyte", "one image more", _append(bytes(30))),
    ("idx", "train-labels-idx1-ubyte", "one label less than images", lambda path: path.write_bytes(
        struct.pack(">BBBBI", 0, 0, 8, 1, 39) + path.read_bytes()[8:-1])),
    ("idx", "train-labels-idx1-ubyte", "a label of no class", _flip(12, 6)),
    *(("idx_gz", "train-images-idx3-ubyte.gz", f"a bit at {at}", _flip(at)) for at in (0, 0.5)),
    ("idx_gz", "train-labels-idx1-ubyte.gz", "its checksum", lambda path: _flip(path.stat().st_size - 6)(path)),
    ("idx_gz", "train-labels-idx1-ubyte.gz", "its length", lambda path: _flip(path.stat().st_size - 2)(path)),
    ("idx_gz", "train-images-idx3-ubyte.gz", "more after its end", _append(b"\0garbage")),
    ("cifar", "data_batch_1.bin", "a label of no class", _flip(3073 * 3, 5)),
    ("cifar", "data_batch_1.bin", "a byte more", _append(b"\0")),
    ("cifar", "batches.meta.txt", "a name less", _replace(b"j", b"")),
    ("tfds", "dataset_info.json", "a record less", _replace(b'"12"', b'"11"')),
    ("tfds", "dataset_info.json", "a record more", _replace(b'"12"', b'"13"')),
    ("tfds", "dataset_info.json", "another shard", _replace(b'"12"', b'"6", "6"')),
    ("tfds", "dataset_info.json", "an unknown format", _replace(b'"tfrecord"', b'"papyrus"')),
    ("tfds", "features.json", "another shape", _replace(b'"4"', b'"5"')),
    ("tfds", "features.json", "an unknown feature", _replace(b"image_feature.Image", b"image_feature.Inage")),
    ("tfds", _TFRECORD, "a record less", _records(lambda records: records[:-1])),
    ("tfds", _TFRECORD, "a record more", _records(lambda records: [*records, records[0]])),
    *(("tfds", _TFRECORD, f"a bit at {place}", _flip(place)) for place in (0, 9, 0.7)),
    *(("images", "train/a/1.png", f"bit at {at}", _flip(at)) for at in (1, 18, 25, 30, 0.5)),
    ("images", "train/a/1.png", "a text", _write(b"<html>404 Not Found</html>")),
    ("images", "train/a/1.png", "a huge size", _huge),
    ("images", "train/a/1.png", "a line less than its header says", _taller),
    ("images", "train/a/1.png", "garbage after its end", _append(b"garbage")),
    ("images", "test/b/0.jpg", "cut in its pixels", _cut(0.8)),
    ("table", "labels.csv", "a row of two", _append(b"files/train/a/9.png,a\n")),
    ("table", "labels.csv", "another encoding", _replace(b"label,", b"l\xe4bel,")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "file", "damage"),
    [pytest.param(kind, file, damage, id=f"{kind}: {file}: {name}") for kind, file, name, damage in _DAMAGES],
)
def test_a_damaged_file_is_named_or_the_examples_are_whole(kinds, undamaged, tmp_path, kind, file, damage):
    folder = tmp_path / kind
    shutil.copytree(kinds[kind], folder)
    damage(folder / file)
    message = ""
    try:
        # Root may read any file; gzip ignores bytes after its end.
        assert _read(folder) == undamaged[kind]
    except DataError as error:
        message = error.what
    named = any(str(folder / each) in message for each in (file, *_OTHERS.get(file, ())))
    assert not message or named or f"{folder}/labels.csv: row 5 names {file}, which does not exist" == message, message


# Where two files contradict each other, either may be named.
_OTHERS = {
    "train-images-idx3-ubyte": ("train-labels-idx1-ubyte",),
    "t10k-labels-idx1-ubyte": ("t10k-images-idx3-ubyte",),
    "train-images-idx3-ubyte.gz": ("train-labels-idx1-ubyte.gz",),
    "dataset_info.json": (_TFRECORD, _TFRECORD.replace("00001", "00002")),
    "features.json": (_TFRECORD,),
    "labels.csv": ("files/train/a/9.png", "files/train/b/3.jpg"),
}
