"""Splits, image folders by class and tables of paths: problems that `validate` finds from names alone."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.data import find_overlap
from tfx_estimator.pipeline.config.package_names import metric_names, tfds_names
from tfx_estimator.pipeline.user_data import read


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("train[:80%]", "train[70%:]", True),
        ("train[:80%]", "train[80%:]", False),
        ("train[-20%:]", "train[:90%]", True),
        ("train[:80%]", "test[70%:]", False),
        ("train[:5%]+train[95%:]", "test+train[90%:]", True),
        ("train[:10_000]", "train[9000:]", True),
        ("train[0:50%]", "train[40%:]", True),
        ("train", "train[-1000:]", True),
        ("train[3shard]", "train[0%:]", True),
        ("all", "test[:10]", True),
        # These are found once the number of examples is known.
        ("train[:80%]", "train[5000:]", False),
        ("train[:-1000]", "train[2000:]", False),
    ],
)
def test_overlaps_are_found_in_split_expressions(one, other, shared):
    assert bool(find_overlap(one, other)) == shared


@pytest.mark.parametrize(
    ("splits", "instead"),
    [
        ("{train: 'train[:80%]', eval: 'train[70%:]'}", "{train: 'train[:90%]', eval: 'train[90%:]'}"),
        (
            "{train: 'train[:80%]', eval: 'train[80%:]', test: 'train[90%:]'}",
            "{train: 'train[:80%]', eval: 'train[80%:90%]', test: 'train[90%:]'}",
        ),
    ],
)
def test_overlaps_are_refused_before_anything_runs(problems, good, splits, instead):
    (problem,) = problems(good.replace('{train: "train[:90%]", eval: test}', splits))
    assert "both hold a part of" in problem
    assert f"set splits: {instead}" in problem


THREE = tuple(f"{split}/{name}/1.png" for split in ("train", "val", "test") for name in ("cat", "dog"))


def _touch(folder, *names):
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


@pytest.fixture
def declare(good):
    def text(dataset, splits):
        return good.replace("dataset: mnist", f"dataset: {dataset}").replace(
            '  splits: {train: "train[:90%]", eval: test}\n', f"  splits: {splits}\n" if splits else ""
        )

    return text


@pytest.mark.parametrize(
    ("files", "splits", "todo"),
    [
        (("cat/1.png", "dog/1.png"), "", "set splits: {train: 'train[:90%]', eval: 'train[90%:]'}"),
        (("train/cat/1.png", "train/dog/1.png", "valid/cat/1.png"), "", "set splits: {train: 'train', eval: 'valid'}"),
        (
            ("train/cat/1.png", "train/dog/1.png", "test/cat/1.png"),
            "{eval: tset}",
            "set splits: {train: 'train', eval: 'test'}",
        ),
        (
            ("train-images-idx3-ubyte", "t10k-images-idx3-ubyte"),
            "{eval: val}",
            "set splits: {train: 'train', eval: 'test'}",
        ),
        (("data_batch_1.bin", "test_batch.bin"), "{eval: val}", "set splits: {train: 'train', eval: 'test'}"),
        (THREE, "{eval: val, test: tset}", "set splits: {train: 'train', eval: 'val', test: 'test'}"),
    ],
)
def test_a_missing_split_is_refused_with_a_fix(write, problems, declare, tmp_path, files, splits, todo):
    _touch(tmp_path / "pets", *files)
    (problem,) = problems(declare("./pets", splits))
    assert "the data set pets has no split" in problem
    assert todo in problem
    write(declare("./pets", todo.removeprefix("set splits: ")))
    assert load("mine.yaml").declaration.data.dataset == str(tmp_path / "pets")


def test_a_split_that_is_left_out_is_named_with_the_reason(problems, declare, tmp_path):
    _touch(tmp_path / "pets", "train/cat/1.png", "train/dog/1.png", "test/1.png", "test/2.png")
    (problem,) = problems(declare("./pets", "{train: train, eval: test}"))
    assert "no split `test`: the folder of this name is left out (in no folder of a class)\n" in problem
    assert "expected: train, or parts of it\n" in problem


def test_what_is_not_read_is_noted(write, declare, tmp_path, monkeypatch):
    pets = tmp_path / "pets"
    _touch(pets, *THREE[:2], "val/cat/1.heic", "val/cat/2.HEIC", "test/1.png", "train/cat/a.txt")
    walk, walked = read.read_folder, []
    monkeypatch.setattr(read, "read_folder", lambda *given: walked.append(given) or walk(*given))
    assert load(write(declare("./pets", "{train: train, eval: val}"))).notes == (
        f"left out (in no folder of a class): test of {pets}",
        f"left out (not an image): train/cat/a.txt of {pets}",
        f"the split val of {pets} has no image of dog",
        f"HEIC is not read, the format of files in {pets}, by their names: 2",
    )
    assert len(walked) == 1


def test_a_table_is_found_next_to_the_declaration(write, problems, declare, tmp_path):
    (problem,) = problems(declare("labels.csv", "{eval: test}"))
    assert "there is no such file" in problem
    for written in ("file;label\n1.png;cat\n", "file\tlabel\n"):
        (tmp_path / "labels.csv").write_text(written)
        (problem,) = problems(declare("labels.csv", "{eval: test}"))
        assert "expected: commas between columns" in problem
    (tmp_path / "labels.csv").write_text("file,split\n")
    (problem,) = problems(declare("labels.csv", "{eval: test}"))
    assert "has no columns named label or class" in problem
    (tmp_path / "labels.csv").write_text("file,class,split\n")
    assert load(write(declare("labels.csv", "{eval: test}"))).declaration.data.dataset == str(tmp_path / "labels.csv")


@pytest.mark.parametrize(
    ("dataset", "near"), [("mnits", "mnist"), ("cifar10_hh", "cifar10_h"), ("emnit/letters", "emnist"), ("xyzzy", "")]
)
def test_a_name_that_tfds_does_not_know_is_refused_with_a_near_one(write, problems, declare, tmp_path, dataset, near):
    (problem,) = problems(declare(dataset, "{train: train, eval: test}"))
    assert f"TFDS has no data set {dataset.split('/')[0]}, and there is no folder of this name" in problem
    assert f"did you mean `{near}`?" in problem if near else "catalog" in problem
    suggested = near or "beans"
    assert load(write(declare(suggested, "{train: train, eval: test}"))).declaration.data.dataset == suggested
    (tmp_path / "prepared" / dataset).mkdir(parents=True)
    write(declare(f"{dataset}\n  data_dir: prepared", "{train: train, eval: test}"))
    assert load("mine.yaml").declaration.data.dataset == dataset


def test_every_data_set_of_tfds_is_known():
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import registered

    # Of tests that ran before in this process.
    own = {name for name, cls in registered._DATASET_REGISTRY.items() if not cls.__module__.startswith(tfds.__name__)}
    names = set(tfds.list_builders(with_community_datasets=False)) - own
    assert names
    assert not set(names) - tfds_names()


NEAR_METRICS = [
    ("f1", "F1Score"),
    ("AUCC", "AUC"),
    ("accuracy", "SparseCategoricalAccuracy"),
    ("loss", "SparseCategoricalCrossentropy"),
    ("top_k", "SparseTopKCategoricalAccuracy"),
    ("mae", ""),
]


@pytest.mark.parametrize(("name", "near"), NEAR_METRICS)
def test_a_metric_that_neither_tfma_nor_keras_has_is_refused(write, problems, good, name, near):
    (problem,) = problems(good + f"evaluator: {{metrics: [{name}]}}\n")
    assert "neither TFMA nor Keras has a metric of this name" in problem
    assert f"did you mean `{near}`?" in problem if near else "tfma.metrics" in problem
    near = near or "AUC"
    assert load(write(good + f"evaluator: {{metrics: [{near}]}}\n")).declaration.evaluator.metrics[0].name == near


def test_every_metric_of_tfma_and_keras_is_known():
    from tensorflow_model_analysis.metrics import metric_specs, metric_types

    of_keras = {name for name, each in vars(metric_specs.tf_keras.metrics).items() if isinstance(each, type)}
    assert {*metric_types.registered_metrics(), *of_keras} <= set(metric_names())
