"""Several files, standard input, environment variables, and keys that are free for anchors."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import yaml

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import Declaration, load
from tfx_estimator.pipeline.config.draft import _read_input, join_sources
from tfx_estimator.pipeline.config.yaml_text import inline

BASE = """\
name: base
data:
  dataset: digits
  splits: {train: "train[:80%]", eval: "train[80%:]"}
trainer:
  model: mnist_cnn
  train_steps: 500
  optimizer: {name: momentum, learning_rate: 0.02}
evaluator: {slices: [label], min_accuracy: 0.5}
pusher: {destination: served}
"""
MINE = """\
# mine
name: mine
trainer:
  optimizer: {learning_rate: 0.1}
evaluator: {slices: []}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "base.yaml").write_text(BASE)
    (tmp_path / "mine.yaml").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(source: str, overrides: tuple[str, ...] = ()) -> str:
    with pytest.raises(DeclarationError) as caught:
        load(source, overrides)
    return str(caught.value)


def test_later_files_override_and_lists_are_replaced(folder):
    loaded = load("base/base.yaml+mine.yaml", ["trainer.seed=7"])
    declaration, origins = loaded.declaration, loaded.origins
    assert (declaration.name, declaration.trainer.optimizer.learning_rate) == ("mine", 0.1)
    assert (declaration.trainer.optimizer.name, declaration.trainer.train_steps) == ("momentum", 500)
    assert (declaration.evaluator.slices, declaration.evaluator.min_accuracy) == ((), 0.5)
    assert origins["trainer.optimizer.learning_rate"] == "mine.yaml:4"
    assert origins["trainer.optimizer.name"] == "base/base.yaml:8"
    assert origins["evaluator.slices"] == "mine.yaml:5"
    # Each file's paths start at its own folder, and modules are found in both.
    assert declaration.pusher.destination == str(folder / "base" / "served")
    assert loaded.search_paths == (str(folder), str(folder / "base"))
    # A preset may be below.
    over = load("digits+mine.yaml")
    assert over.declaration.trainer.optimizer.learning_rate == 0.1
    assert over.origins["trainer.train_steps"].startswith("preset digits:")
    assert "trainer.optimizer.learning_rate" in over.declared
    assert "trainer.train_steps" not in over.declared


@pytest.mark.parametrize("written", ["", " ~", " null", " {}"])
def test_an_empty_section_leaves_what_is_below_it(folder, written):
    (folder / "mine.yaml").write_text(
        f"evaluator:{written}\n  # min_accuracy: 0.9\ntrainer:\n  seed: 7\n  optimizer:{written}\npusher:{written}\n"
    )
    loaded = load("base/base.yaml+mine.yaml")
    expected = load("base/base.yaml", ["trainer.seed=7"])
    assert loaded.declaration == expected.declaration
    assert loaded.origins["evaluator.min_accuracy"] == "base/base.yaml:9"


def test_null_switches_off_what_an_empty_key_leaves(folder):
    (folder / "net.py").write_text("def network(num_classes, inner): ...\n")
    (folder / "base" / "base.yaml").write_text(
        BASE.replace("500", "500\n  params: {inner: {a: 1}}\n  early_stopping: {patience: 2}").replace(
            "mnist_cnn", "net:network"
        )
    )
    for written, is_left in (("", True), (" null", False)):
        (folder / "mine.yaml").write_text(f"trainer:\n  params:\n    inner:{written}\n  early_stopping:{written}\n")
        trainer = load("base/base.yaml+mine.yaml").declaration.trainer
        assert (trainer.early_stopping is not None, trainer.params["inner"] is not None) == (is_left, is_left)


@pytest.mark.parametrize(
    ("below", "above"),
    [
        ("distribution: {train: 'mirrored:2'}", "distribution: {train: {devices: 4}}"),
        ("distribution: {train: 'mirrored:2'}", "distribution: {train: }"),
        # A short form above replaces the whole section: the devices of `mirrored` are not those of a cluster.
        ("distribution: {train: 'mirrored:4'}", "distribution: {train: 'multi_worker_mirrored:2'}"),
        ("distribution: {train: {strategy: mirrored, devices: {gpu: 2}}}", "distribution: {train: {devices: 2}}"),
        ("keep_best: accuracy", "keep_best: {mode: max}"),
        ("keep_best: accuracy", "keep_best: null"),
        ("keep_best: {metric: loss, mode: min}", "keep_best: accuracy"),
    ],
)
def test_a_short_form_means_the_same_below_and_above(folder, below, above):
    """The expected result is the lower file's, with the upper file's last key as an override."""
    (folder / "base" / "base.yaml").write_text(BASE.replace("500", f"500\n  {below}"))
    (folder / "mine.yaml").write_text(f"trainer:\n  {above}\n")
    values, path = yaml.safe_load(above), ["trainer"]
    while isinstance(values, dict):
        ((key, values),) = values.items()
        path.append(key)
    overrides = [] if above.endswith(": }") else [f"{'.'.join(path)}={inline(values)}"]
    loaded, expected = load("base/base.yaml+mine.yaml"), load("base/base.yaml", overrides)
    assert loaded.declaration == expected.declaration
    if above.endswith("{devices: 4}}"):
        train = loaded.declaration.trainer.distribution.train
        assert (train.strategy, train.devices.cpu) == ("mirrored", 4)
        assert loaded.origins["trainer.distribution.train.strategy"] == "base/base.yaml:8"
        assert loaded.origins["trainer.distribution.train.devices.cpu"] == "mine.yaml:2"


def test_the_order_decides(folder):
    assert load("mine.yaml+base/base.yaml").declaration.trainer.optimizer.learning_rate == 0.02


def test_a_name_with_the_sign_in_it_is_one_file(folder):
    (folder / "c++").mkdir()
    (folder / "c++" / "a+b.yaml").write_text(BASE)
    assert load("c++/a+b.yaml").declaration.name == "base"
    assert load("c++/a+b.yaml+mine.yaml").declaration.name == "mine"
    assert load(join_sources(["base/base.yaml", "c++/a+b.yaml"])).declaration.name == "base"


def test_the_place_of_an_error_names_its_file(folder):
    (folder / "mine.yaml").write_text(MINE + "trainer: {}\npushr: {}\n")
    (folder / "base" / "base.yaml").write_text(BASE.replace("500", "lots"))
    message = refused("base/base.yaml+mine.yaml")
    places = [line.split()[0] for line in message.splitlines() if ".yaml:" in line]
    assert places == ["base/base.yaml:7", "mine.yaml:6", "mine.yaml:7"]
    assert "tfx-estimator validate base/base.yaml+mine.yaml" in message
    assert "there is no declaration yours.yaml" in refused("base/base.yaml+yours.yaml")


def test_a_replaced_section_is_reported_with_its_last_file_only(folder):
    (folder / "mine.yaml").write_text("trainer: {optimizer: 3}\n")
    message = refused("base/base.yaml+mine.yaml")
    assert "mine.yaml:1  trainer.optimizer: 3" in message
    assert "base.yaml" not in message.partition("then:")[0].splitlines()[2:][0]


def test_standard_input_is_read_once_and_its_paths_start_here(folder, monkeypatch, cli):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BASE.encode())))
    _read_input.cache_clear()
    try:
        shown = json.loads(cli("show", "-", "mine.yaml", "--json").out)
        assert shown["declaration"]["pusher"]["destination"] == str(folder / "served")
        assert shown["origins"]["trainer.train_steps"] == "standard input:7"
        assert shown["files"] == ["-", str(folder / "mine.yaml")]
        assert load("-").declaration.name == "base"
        _read_input.cache_clear()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"name: \xff")))
        assert "standard input:1 is not UTF-8: byte 0xff" in refused("-")
    finally:
        _read_input.cache_clear()


def test_verbs_accept_several_files(folder, cli):
    assert "0.1" not in cli("validate", "base/base.yaml+mine.yaml", "digits").err
    assert "name: third" in cli("show", "base/base.yaml", "mine.yaml", "--set", "name=third").out


def test_variables_are_inserted_with_their_types(folder, monkeypatch):
    monkeypatch.setenv("STEPS", "70")
    monkeypatch.setenv("RATE", "3e-1")
    monkeypatch.setenv("WHERE", "a: {b} # c")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("NOT_SET", raising=False)
    (folder / "net.py").write_text("def network(num_classes, **params): ...\n")
    (folder / "mine.yaml").write_text(
        "trainer:\n  train_steps: ${STEPS}  # and not ${NOT_SET}\n  model: net:network\n"
        "  optimizer: {learning_rate: ${RATE}, name: ${NOT_SET:-adam}}\n"
        "  params: {text: '${STEPS}', both: \"x-${STEPS}-${NOT_SET:-y z}\", foreign: ${WHERE}, none: ${EMPTY},\n"
        "    price: $$5, literal: '$${STEPS}', twice: $$$$, alone: a$b, '${STEPS}': key, filled: ${EMPTY:-full}}\n"
    )
    declaration = load("base/base.yaml+mine.yaml", ["evaluator.min_accuracy=${NOT_SET:-0.75}"]).declaration
    trainer = declaration.trainer
    assert (trainer.train_steps, trainer.optimizer.learning_rate, trainer.optimizer.name) == (70, 0.3, "adam")
    assert declaration.evaluator.min_accuracy == 0.75
    assert trainer.params == {
        "text": "70",
        "both": "x-70-y z",
        "foreign": "a: {b} # c",
        "none": "",
        "price": "$5",
        "literal": "${STEPS}",
        "twice": "$$",
        "alone": "a$b",
        "70": "key",
        "filled": "full",
    }
    # The written declaration holds the values, independent of the environment of its reader.
    monkeypatch.setenv("STEPS", "1")
    (folder / "written.yaml").write_text(declaration.to_yaml())
    assert load("written.yaml").declaration == declaration
    assert Declaration.from_json(declaration.to_json()) == declaration


def test_an_unset_variable_is_refused_with_its_place(folder, monkeypatch):
    monkeypatch.delenv("NOT_SET", raising=False)
    (folder / "mine.yaml").write_text(
        "trainer:\n  train_steps: ${NOT_SET}\n  model: ${1x}\n  seed: ${NOT_SET\n  path: ${NOT_SET:-${A}}\n"
    )
    message = refused("base/base.yaml+mine.yaml", ("evaluator.min_accuracy=${NOT_SET}",))
    assert "has 5 problems" in message
    for place in ("mine.yaml:2  trainer.train_steps", "mine.yaml:3  trainer.model", "mine.yaml:4  trainer.seed"):
        assert place in message
    assert "NOT_SET is not set" in message
    assert "${NOT_SET:-DEFAULT}" in message
    assert "${NOT_SET:-${A}: this is not a variable's name" in message
    assert "${1x}: this is not a variable's name" in message
    assert "--set evaluator.min_accuracy=${NOT_SET}  evaluator.min_accuracy" in message


def test_a_variable_is_never_read_as_yaml(folder, monkeypatch):
    """A variable holds one value, never more keys."""
    for evil in ("base\ntrainer: {model: evil}", "<<", "{a: b}", "*rates"):
        monkeypatch.setenv("EVIL", evil)
        (folder / "mine.yaml").write_text("name: ${EVIL}\n")
        message = refused("base/base.yaml+mine.yaml")
        assert "has 1 problem" in message
        assert "mine.yaml:1  name" in message


def test_keys_that_begin_with_x_are_free_for_anchors(folder):
    (folder / "mine.yaml").write_text(
        "x-rates: &rates {learning_rate: 0.3, nesterov: true}\nx-what: [1, {a: b}]\n"
        "trainer: {optimizer: {<<: *rates, name: momentum}}\n"
    )
    optimizer = load("base/base.yaml+mine.yaml").declaration.trainer.optimizer
    assert (optimizer.learning_rate, optimizer.nesterov) == (0.3, True)
    (folder / "mine.yaml").write_text("trainer: {x-rates: 1}\n")
    assert "unknown key `x-rates`" in refused("base/base.yaml+mine.yaml")


@pytest.mark.parametrize("override", ["trainer.train_steps=5,10", "trainer.path=estimator,keras"])
def test_several_values_point_to_vary(folder, override):
    assert f"tfx-estimator compare … --vary {override}" in refused("base/base.yaml", (override,))
