"""`data`: tables, files of records, names and declarations; folders of images are in tests/pipeline/user_data."""

from __future__ import annotations

import numpy as np
import pytest
import yaml
from PIL import Image

from tests.data.sizes import opened
from tests.data.sources.conftest import write_idx
from tests.folders import write_files
from tests.root import run_python
from tests.table_files import write_parquet, write_records
from tfx_estimator.pipeline.base.errors import DataError, DeclarationError


@pytest.fixture
def shown(cli):
    def show(*arguments: object) -> tuple[str, dict]:
        output = cli("data", *map(str, arguments)).out
        return output, yaml.safe_load(output[output.index("data:\n") :])["data"]

    return show


@pytest.fixture
def pets(tmp_path):
    """A table of grey and coloured images in two splits."""
    rows = ["image,label,split"]
    for number in range(12):
        name = f"{number}.jpg"
        Image.new("RGB" if number % 3 else "L", (6, 4), number).save(tmp_path / name)
        rows.append(f"{name},{'cat' if number % 2 else 'dog'},{'train' if number < 8 else 'val'}")
    return write_files(tmp_path, {"pets.csv": "\n".join(rows)}) / "pets.csv"


def test_a_table(shown, pets):
    output, section = shown(pets)
    assert output.startswith(f"table of images: {pets}\n  2 classes: cat, dog\n")
    assert "split train: 8 examples: cat (4), dog (4)\n" in output
    assert "  sizes (height x width): 4 x 6 (12)\n  channels: 3 (8), 1 (4)\n  formats: JPEG (12)\n" in output
    source = opened(**section)
    counts = {split: sum(len(part) for part in parts) for split, parts in source.resolve_disjoint().items()}
    assert counts == {"train": 8, "eval": 4}


@pytest.mark.parametrize(("key", "name"), [("parquet", "t.parquet"), ("tfrecord", "t.tfrecord.gz")])
def test_a_table_of_features_in_other_files(shown, tmp_path, key, name):
    write = {"parquet": write_parquet, "tfrecord": write_records}[key]
    write(tmp_path / "in" / name, {"x": [0.5, 1.5] * 20, "tags": [["a", "b"], ["c"]] * 20, "y": [0, 1] * 20})
    for place in (tmp_path / "in", tmp_path / "in" / name):
        output, section = shown(place)
        assert output.startswith(f"table of features: {tmp_path / 'in' / name}\n  40 rows, 3 columns\n")
        assert "  tags    bytes        0  up to 2 a row\n" in output
        assert section.pop("splits") == {"train": 2, "eval": 1}
        assert {*section} == {key, "label"}
        assert section["label"] == "y"
        (tmp_path / "t.yaml").write_text(yaml.safe_dump({"name": "t", "data": section}))
        assert shown(tmp_path / "t.yaml")[0] == output


def test_idx_files(shown, tmp_path):
    for prefix, count in (("train", 30), ("t10k", 10)):
        write_idx(tmp_path / f"{prefix}-images-idx3-ubyte.gz", np.zeros((count, 5, 4), np.uint8))
        write_idx(tmp_path / f"{prefix}-labels-idx1-ubyte.gz", (np.arange(count) % 3).astype(np.uint8))
    output, section = shown(tmp_path)
    assert output.startswith(f"IDX files: {tmp_path}\n  3 classes: 0, 1, 2\n")
    assert "split train: 30 examples: 0 (10), 1 (10), 2 (10)\n" in output
    assert "split test: 10 examples: 0 (4), 1 (3), 2 (3)\n" in output
    assert set(opened(**section).resolve_disjoint()) == {"train", "eval"}


def test_a_prepared_data_set_and_a_preset(shown, real_data_dir):
    output, section = shown(f"{real_data_dir}/mnist")
    assert "split train: 60,000 examples\n" in output
    assert set(opened(**section).resolve_disjoint()) == {"train", "eval"}
    output, section = shown("digits")
    assert "10 classes: 0, 1, 2" in output
    assert section["dataset"] == "digits"


def test_a_declaration_whose_splits_are_wrong(shown, pets, tmp_path):
    write_files(tmp_path, {"mine.yaml": "name: mine\ndata: {dataset: pets.csv, splits: {train: trian}, channels: 1}"})
    _, section = shown(tmp_path / "mine.yaml")
    assert section == {"dataset": str(pets), "splits": {"train": "train", "eval": "val"}, "channels": 1}


FOLDS = {"train": "fold0+fold1", "eval": "fold2"}


def _paint(folder, names):
    for name, shade in names.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), shade).save(folder / name)


def test_a_declaration_whose_splits_can_be_read_keeps_them(shown, tmp_path):
    shades = {"fold0/cat": 1, "fold0/dog": 2, "fold1/cat": 3, "fold1/dog": 4, "fold2/cat": 3, "fold2/dog": 5}
    _paint(tmp_path / "pets", {f"{name}/1.png": shade for name, shade in shades.items()})
    write_files(tmp_path, {"mine.yaml": f"name: mine\ndata: {{dataset: ./pets, splits: {FOLDS}}}"})
    output, section = shown(tmp_path / "mine.yaml")
    assert section == {"dataset": str(tmp_path / "pets"), "splits": FOLDS}
    assert "  note: of the 2 images of fold2 also in fold0+fold1, byte for byte: 1, as " in output


def test_equal_images_in_parts_of_a_split_are_told(shown, tmp_path):
    _paint(tmp_path / "pets", {f"{name}/{number}.png": len(name) for name in ("cat", "puppy") for number in range(10)})
    splits = {"train": "train[:80%]", "eval": "train[80%:]"}
    write_files(tmp_path, {"mine.yaml": f"name: mine\ndata: {{dataset: ./pets, splits: {splits}}}"})
    output, section = shown(tmp_path / "mine.yaml")
    assert section["splits"] == splits
    assert "  note: of the 4 images of train[80%:] also in train[:80%], byte for byte: 4, as " in output


def test_equal_images_are_counted_in_the_split_of_the_evaluation(shown, tmp_path):
    train = {
        f"train/{name}/{number}.png": number + 100 * (name == "dog") for name in ("cat", "dog") for number in range(6)
    }
    _paint(tmp_path, {**train, "test/cat/a.png": 1, "test/cat/b.png": 1, "test/dog/c.png": 99})
    output, _ = shown(tmp_path)
    assert "  note: of the 3 images of test also in train, byte for byte: 2, as " in output
    assert output.index("split train") < output.index("split test")


def test_a_name_of_tfds(shown):
    output, section = shown("fashion_mnist")
    assert output.startswith("data set: fashion_mnist\n  10 classes: T-shirt/top, Trouser, ")
    assert section["dataset"] == "fashion_mnist"


def test_a_name_that_is_nothing_is_refused(tmp_path, cli):
    refused = cli("data", str(tmp_path / "nowhere"), code=DeclarationError.exit_code).err
    assert "  expected: a folder, a CSV or Parquet file, a preset, a declaration, or a TFDS name\n" in refused
    cli("data", str(tmp_path / "nowhere.csv"), code=DataError.exit_code)


def test_a_table_of_features(shown, tmp_path):
    rows = [
        "age,job,class",
        *(f"{n % 9},{('nurse', 'cook', '')[n % 3]},{('<=50K', '>50K')[n // 3 % 2]}" for n in range(60)),
    ]
    write_files(
        tmp_path, {"a.csv": "\n".join(rows), "b.csv": "\n".join(["age,job,class", "?,cook,>50K", "7,cook,>50K"])}
    )
    output, section = shown(tmp_path)
    assert output.startswith(f"table of features: {tmp_path}\n  62 rows of 2 files, 3 columns\n")
    assert "  job     bytes       20  cook (22), nurse (20)\n" in output
    assert (
        "  note: numbers that are read as words, because of some cells: age ('?' in line 2 of b.csv; 1 of 62" in output
    )
    assert "  the label class asks for: binary\n" in output
    assert section == {"csv": f"{tmp_path}/*.csv", "label": "class", "splits": {"train": 2, "eval": 1}}
    output, section = shown(tmp_path / "a.csv")
    assert "  age     int          0  0 to 8; different: 9\n" in output
    assert section["csv"] == str(tmp_path / "a.csv")
    assert shown(tmp_path / "?.csv")[1]["csv"] == str(tmp_path / "?.csv")


def test_a_declared_table_is_compared_with_the_schema_that_its_runs_kept(cli, tmp_path):
    home = write_files(tmp_path / "runs" / "mine", {"schema.pbtxt": 'feature { name: "x" type: INT }'})
    declared = "name: mine\ndata: {csv: t.csv, label: y}\ntrainer: {model: dnn, train_steps: 10}\n"
    write_files(tmp_path, {"t.csv": "x,y\n1,0\n?,1\n", "mine.yaml": declared})
    arguments = ("data", str(tmp_path / "mine.yaml"), "--workdir", str(tmp_path / "runs"))
    output = cli(*arguments).out
    assert f"  schema: {home}/schema.pbtxt\n" in output
    assert "  note: unlike in the schema, column x holds words ('?'), not whole numbers\n" in output
    assert "  note: unlike in the schema, column y is new\n" in output
    assert "schema" not in cli(*arguments[:3], str(tmp_path / "others")).out


def test_a_wide_table_whose_label_is_not_obvious(shown, tmp_path):
    names = [f"x{n}" for n in range(40)]
    write_files(tmp_path, {"a.csv": "\n".join(",".join(map(str, [*range(39), row])) for row in range(9))})
    (tmp_path / "a.csv").write_text(",".join(names) + "\n" + (tmp_path / "a.csv").read_text())
    output, section = shown(tmp_path / "a.csv")
    assert "x29 " in output
    assert "x30 " not in output
    assert "  and 10 more columns\n" in output
    assert "  label: ...  # choose one of x0, x1" in output
    assert section["label"] == "..."


def test_a_table_whose_label_is_wrong_is_shown_and_refused(cli, tmp_path):
    write_files(tmp_path, {"a.csv": "x,label\n1,a\n2,b\n3,\n"})
    ended = cli("data", str(tmp_path / "a.csv"), code=DataError.exit_code)
    assert "  label   bytes        1  a (1), b (1)\n" in ended.out
    assert f"the label label is missing in line 4 of {tmp_path}/a.csv" in ended.err


def test_images_and_tables_are_shown_without_tensorflow(pets, tmp_path):
    features = write_files(tmp_path / "features", {"a.csv": "x,y\n1,0\n2,1\n"})
    code = f"import sys; from tfx_estimator.__main__ import main; main(['data', {str(pets)!r}]); "
    code += f"main(['data', {str(features)!r}]); "
    code += "sys.exit(bool({'tensorflow', 'tensorflow_datasets', 'tfx'} & set(sys.modules)))"
    run_python("-c", code, code=0)
