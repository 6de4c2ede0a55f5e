"""Good declarations: values, overrides, origins and paths."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tfx_estimator.pipeline import presets
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import Declaration, load


@pytest.mark.parametrize("name", presets.names())
def test_the_overrides_in_every_presets_header_load(name):
    suggested = [re.findall(r"--set (\S+)", line) for line in presets.header(name)]
    lines = [[override.replace("=DIR", "=~/tfds") for override in line] for line in suggested if line]
    assert len(lines) > 2
    for line in lines:
        # A strategy and its devices stand in two lines.
        with_strategy = ["trainer.distribution.train.strategy=mirrored", *line] if "devices" in line[0] else line
        assert load(name, with_strategy).declaration != load(name).declaration
    assert load(name, [override for line in lines for override in line]).declaration != load(name).declaration


def test_origins_say_where_each_value_came_from(write, good):
    origins = load(write(good), ["trainer.seed=7", "trainer.optimizer={name: sgd}"]).origins
    assert origins["data.splits.eval"] == "mine.yaml:4"
    assert origins["trainer.train_steps"] == "mine.yaml:7"
    assert origins["trainer.seed"] == origins["trainer.optimizer.name"] == "--set"
    assert origins["trainer.global_batch_size"] == "default"
    assert origins["trainer.save_checkpoints_steps"] == "default, derived: 100"
    assert load("digits").origins["data.shards"].startswith("preset digits:")
    # Every value has one.
    loaded = load("cifar10", ["trainer.model=cifar_resnet9", "trainer.params={width: {units: [1, 2]}}"])
    assert loaded.origins["trainer.params.width.units"] == "--set"
    assert all(loaded.origins.values())


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("trainer.train_steps=7", ("trainer", "train_steps"), 7),
        ("trainer.train_steps=1_000", ("trainer", "train_steps"), 1000),
        ("trainer.optimizer.learning_rate=1e-3", ("trainer", "optimizer", "learning_rate"), 0.001),
        ("trainer.optimizer.learning_rate=1", ("trainer", "optimizer", "learning_rate"), 1.0),
        ("data.image_size=[28, 28]", ("data", "image_size"), (28, 28)),
        ("data.splits.train=train[:10%]+train[20%:30%]", ("data", "splits", "train"), "train[:10%]+train[20%:30%]"),
        ("data.version=2024-01-01", ("data", "version"), "2024-01-01"),
        ("data.version='3.0'", ("data", "version"), "3.0"),
        ("data.download=no", ("data", "download"), False),
        ("evaluator.slices=[]", ("evaluator", "slices"), ()),
        ("evaluator.max_accuracy_drop=null", ("evaluator", "max_accuracy_drop"), None),
        ("evaluator.max_accuracy_drop=", ("evaluator", "max_accuracy_drop"), None),
        ("trainer.params.width.er=[1, two]", ("trainer", "params"), {"width": {"er": [1, "two"]}}),
        ("beam.options=['--direct_num_workers=1']", ("beam", "options"), ("--direct_num_workers=1",)),
    ],
)
def test_an_override_is_yaml(write, good, override, path, value):
    found = load(write(good.replace("mnist_cnn", "cifar_resnet9")), [override]).declaration.dict()
    for key in path:
        found = found[key]
    assert found == value
    assert type(found) is type(value)


def test_the_later_of_two_overrides_wins_and_corrects_a_file(write, good):
    write(good.replace("500", "lots"))
    assert load("mine.yaml", ["trainer.train_steps=5", "trainer.train_steps=6"]).declaration.trainer.train_steps == 6


def test_paths_in_a_file_are_relative_to_its_folder(tmp_path, monkeypatch, good):
    folder = tmp_path / "far" / "away"
    (folder / "images").mkdir(parents=True)
    for split in ("train", "t10k"):
        (folder / "images" / f"{split}-images-idx3-ubyte").touch()
    (folder / "trainer.py").write_text("def run_fn(fn_args): pass")
    text = good.replace("mnist\n", "./images\n  data_dir: ../tfds\n", 1)
    text = text.replace("model: mnist_cnn", "module_file: trainer.py")
    (folder / "mine.yaml").write_text(text + "pusher: {destination: pushed}\n")
    monkeypatch.chdir(tmp_path)
    loaded = load("far/away/mine.yaml")
    declaration = loaded.declaration
    assert declaration.data.dataset == str(folder / "images")
    assert declaration.data.data_dir == str(tmp_path / "far" / "tfds")
    assert declaration.trainer.module_file == str(folder / "trainer.py")
    assert declaration.pusher.destination == str(folder / "pushed")
    assert loaded.origins["trainer.module_file"] == "mine.yaml:7, made absolute"
    assert loaded.search_paths == (str(folder), str(tmp_path))


def test_paths_in_overrides_and_presets_are_relative_to_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "somebody"))
    declaration = load("mnist", ["data.data_dir=tfds", "pusher.destination=~/pushed"]).declaration
    assert declaration.data.data_dir == str(tmp_path / "tfds")
    assert declaration.pusher.destination == str(tmp_path / "somebody" / "pushed")
    assert load("mnist", ["data.data_dir=gs://bucket/tfds"]).declaration.data.data_dir == "gs://bucket/tfds"


def test_anchors_and_merges(write, good):
    train = "    train: &both {strategy: mirrored, devices: {cpu: 2}}\n"
    write(good + "  distribution:\n" + train + "    eval:\n      <<: *both\n      devices: {cpu: 4}\n")
    distribution = load("mine.yaml").declaration.trainer.distribution
    assert distribution.train.devices.cpu == 2
    assert distribution.eval.strategy == "mirrored"
    assert distribution.eval.devices.cpu == 4
    # A mapping with a merge may have an anchor of its own.
    train = "    train: &both {<<: {devices: {cpu: 2}, strategy: one_device}, strategy: mirrored}\n"
    write(good + "  distribution:\n" + train + "    eval: *both\n")
    distribution = load("mine.yaml").declaration.trainer.distribution
    assert distribution.train.strategy == distribution.eval.strategy == "mirrored"
    # A merge keeps the lines of the keys before it.
    devices = "    train: &both {strategy: mirrored, devices: {cpu: 2}}\n"
    loaded = load(write(good + "  distribution:\n" + devices + "    eval:\n      devices: {cpu: 4}\n      <<: *both\n"))
    assert loaded.declaration.trainer.distribution.eval.devices.cpu == 4
    assert loaded.origins["trainer.distribution.eval.devices.cpu"] == "mine.yaml:11"
    assert loaded.origins["trainer.distribution.eval.strategy"] == "mine.yaml:9"


def test_a_section_that_is_set_as_a_whole_has_defaults_for_the_rest(write, good):
    write(good + "  optimizer:\n    learning_rate: 0.5\n")
    assert load("mine.yaml").origins["trainer.optimizer.learning_rate"] == "mine.yaml:9"
    loaded = load("mine.yaml", ["trainer.optimizer.momentum=0.5", "trainer.optimizer={name: adam}"])
    assert loaded.declaration.trainer.optimizer.learning_rate != 0.5
    assert loaded.origins["trainer.optimizer.name"] == "--set"
    assert loaded.origins["trainer.optimizer.learning_rate"] == "default"
    assert loaded.origins["trainer.optimizer.momentum"] == "default"


def test_a_section_whose_lines_are_commented_out_is_its_defaults(write, good):
    loaded = load(write(good + "  optimizer:\n    # name: sgd\nbeam:\n"))
    assert loaded.declaration.trainer.optimizer.name == "momentum"
    assert loaded.declaration.beam.runner == "direct"
    assert loaded.origins["beam.runner"] == "default"


def test_a_file_may_have_a_byte_order_mark_and_windows_line_ends(tmp_path, good):
    file = tmp_path / "mine.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + good.replace("\n", "\r\n").encode())
    assert load(file).declaration.name == "mine"


def test_modules_next_to_the_declaration_are_found_and_not_imported(tmp_path, monkeypatch, good):
    (tmp_path / "conf" / "nets").mkdir(parents=True)
    (tmp_path / "conf" / "nets" / "__init__.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "conf" / "nets" / "small.py").write_text(
        "raise RuntimeError('imported')\nif True:\n    def net(n): pass\nother = net\nfrom x import third as fourth\n"
    )
    (tmp_path / "conf" / "mine.yaml").write_text(good.replace("mnist_cnn", "nets.small:net"))
    monkeypatch.chdir(tmp_path)
    for name in ("net", "other", "fourth"):
        loaded = load("conf/mine.yaml", [f"trainer.model=nets.small:{name}"])
        assert loaded.declaration.trainer.model == f"nets.small:{name}"


def test_a_preset_wins_over_a_file_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("digits").write_text("name: [")
    assert load("digits").declaration.name == "digits"
    with pytest.raises(DeclarationError, match="1 problem"):
        load("./digits")


def test_an_unknown_target_is_refused_with_the_known_ones():
    with pytest.raises(DeclarationError, match=r"there is no target 'Vertex'\n  expected: one of .*vertex"):
        load("digits", target="Vertex")


def test_a_key_may_have_the_name_of_an_argument():
    named = {"self": 1, "cls": 2, "values": 3, "update": 4}
    for made in (Declaration.construct(**named), Declaration.construct().copy(update=named)):
        assert {key: vars(made)[key] for key in named} == named


def test_the_old_name_of_the_threads_stays_valid_in_files_and_overrides(write, good):
    assert load(write(good + "  intra_op_threads: 2\n")).declaration.trainer.intra_op == 2
    assert load("mine.yaml", ["trainer.intra_op_threads=3"]).declaration.trainer.intra_op == 3


@pytest.mark.parametrize("dataset", ["emnist/letters", "imagenet_resized/32x32", "mnist:3.0.1", "own_set/v1.5-x:1.*.*"])
def test_a_data_set_is_named_as_tfds_names_it_unless_there_is_such_a_folder(write, good, tmp_path, dataset):
    (tmp_path / "prepared" / "own_set").mkdir(parents=True)
    write(good.replace("dataset: mnist", f"dataset: {dataset}\n  data_dir: prepared"))
    assert load("mine.yaml").declaration.data.dataset == dataset
    if "/" in dataset:
        (tmp_path / dataset).mkdir(parents=True)
        for split in ("train", "t10k"):
            (tmp_path / dataset / f"{split}-images-idx3-ubyte").touch()
        assert load("mine.yaml").declaration.data.dataset == str(tmp_path / dataset)
