"""Conversion of a whole model_fn in mid-run to a Keras training of the user's network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.pipeline.convert.half import END, HALF
from tfx_estimator.pipeline.base.errors import NotEqualError, UserCodeError
from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.yaml_text import read_yaml

MODULE = "whole_model_fns"
SCOPE = "name without the network's scope"
BLOCKS = {r"block(\d)/weights": r"a\1/kernel", r"block(\d)/biases": r"a\1/bias"}
# model_fn, optimizer, network, map, rules that place weights, tolerance of the next steps.
CASES = [
    *(
        ("keras_layers", name, "keras_network", {}, {SCOPE}, 1e-5)
        for name in ("adam", "nesterov", "sgd", "rmsprop", "rmsprop_centered", "adagrad", "ftrl", "keras_adam")
    ),
    *(("v1_layers", name, "v1_network", {}, {"order of creation"}, 1e-5) for name in ("adam", "sgd")),
    ("v1_norm", "adam", "norm_network", {}, {"order of creation"}, 1e-5),
    ("variables", "momentum", "dense_network", BLOCKS, {"--map"}, 1e-5),
]
# Cases similar to another one run rarely.
RARE = {each[:2] for each in CASES if each[0] in ("v1_layers", "keras_layers")}


def _convert(
    trained: Any,
    output: Path,
    network: str,
    patterns: dict[str, Any] | None = None,
    module: str = MODULE,
    **trainer: Any,
) -> Any:
    """Converts; `trainer` has entries of the declaration given by `--declaration`."""
    from tfx_estimator.pipeline.convert.conversion import KERAS2, convert
    from tfx_estimator.pipeline.convert.replacement import Replacement

    declared = trained.settings.with_trainer(**trainer).section if trainer else None
    return convert(trained.source(), str(output), KERAS2, Replacement(f"{module}:{network}", declared), patterns)


def _declared(output: Path) -> TrainerSection:
    """Returns the trainer section of a conversion's new.yaml."""
    return TrainerSection.parse_obj(read_yaml((output / "new.yaml").read_text(), "new.yaml").value["trainer"])


@pytest.mark.equivalence
@pytest.mark.parametrize(
    ("model_fn", "name", "network", "patterns", "rules", "most"),
    [
        pytest.param(*each, id=f"{each[0]}-{each[1]}", marks=pytest.mark.long if each[:2] in RARE else ())
        for each in CASES
    ],
)
def test_logits_and_the_next_step_equal_the_model_fns(
    half: Any,
    tmp_path: Path,
    model_fn: str,
    name: str,
    network: str,
    patterns: dict[str, str],
    rules: set[str],
    most: float,
) -> None:
    trained, output = half(model=f"{MODULE}:{model_fn}", params={"update": name}), tmp_path / "converted"
    proof = _convert(trained, output, network, patterns)
    assert (proof.examples, proof.classes) == (360, 0)
    assert max(proof.logits.values()) <= 1e-6
    assert max(proof.next_steps.values()) <= most
    assert not proof.wrong
    tensors = json.loads((output / "mapping.json").read_text())["tensors"]
    before = tf.train.load_checkpoint(str(trained.folder / f"model.ckpt-{HALF}"))
    assert {each["tensor"] for each in tensors} == set(before.get_variable_to_shape_map())
    assert {each["rule"] for each in tensors if each["kind"] == "weight"} == rules
    stored = np.load(output / "weights.npz")
    for each in tensors:
        if each["kind"] in ("weight", "slot"):
            np.testing.assert_array_equal(stored[each["place"]], before.get_tensor(each["tensor"]))
    if name == "adam":
        # Resumes by the declaration alone.
        tensors_of = {each["place"]: each["tensor"] for each in tensors}
        end = trained.train(END)
        for place, value in trained.keras(output / "checkpoints", HALF, END - HALF, _declared(output)).items():
            np.testing.assert_allclose(value, end[tensors_of[place]], rtol=0, atol=10 * most, err_msg=place)


@pytest.mark.equivalence
def test_another_network_is_refused_with_the_line_for_the_map(half: Any, runs_once: None, tmp_path: Path) -> None:
    trained, output = half(model=f"{MODULE}:variables", params={"update": "momentum"}), tmp_path / "converted"
    refused = {
        "dense_network": [
            ({}, '"block0/weights": a0/kernel'),
            ({**BLOCKS, r"block(\d)/biases": r"b\1/bias"}, "block0/biases would go to b0/bias by --map"),
            ({**BLOCKS, "blok": "a0/kernel"}, "the line blok of --map matches no tensor"),
            ({r"block2/weights": None, **BLOCKS}, "a2/kernel of the Keras model has no tensor"),
            ({r"block[12]/biases": "a1/bias", **BLOCKS}, "a1/bias would be given 2 tensors"),
        ],
        "with_a_layer_more": [(BLOCKS, "dense_2/kernel of the Keras model has no tensor")],
    }
    for network, maps in refused.items():
        for patterns, words in maps:
            with pytest.raises(UserCodeError) as wrong:
                _convert(trained, output, network, patterns)
            assert words in str(wrong.value)
    swapped = {"block0/biases": "a1/bias", "block1/biases": "a0/bias", **BLOCKS}
    with pytest.raises(NotEqualError, match=r"logits of the estimator: \d"):
        _convert(trained, output, "dense_network", swapped)
    assert not list(tmp_path.glob("*convert*"))


@pytest.mark.long
@pytest.mark.equivalence
def test_a_schedule_must_be_declared_and_dropout_must_be_the_same(half: Any, runs_once: None, tmp_path: Path) -> None:
    decayed = {"name": "adam", "learning_rate": 0.004, "schedule": "exponential", "decay_steps": 6, "decay_rate": 0.5}
    params = {"update": "decayed", "rate": 0.25}
    trained, output = half(model=f"{MODULE}:with_dropout", params=params), tmp_path / "converted"
    with pytest.raises(UserCodeError, match=r"follows a schedule.*: 0\.004 at step 0, ") as wrong:
        _convert(trained, output, "dropout_network", optimizer=decayed)
    assert "name: adam" in wrong.value.expected
    decayed["staircase"] = True
    with pytest.raises(NotEqualError, match=r"random operations in a step: estimator 1, keras 0"):
        _convert(trained, output, "without_dropout", optimizer=decayed)
    # Another rate, then a setting that the graph does not show.
    for network, more in (("other_dropout", {}), ("dropout_network", {"label_smoothing": 0.1})):
        with pytest.raises(NotEqualError, match=r"tensors that differ after 20 more steps.*\n +dense.*: (0\.\d|[1-9])"):
            _convert(trained, output, network, optimizer=decayed, **more)
    assert not output.exists()
    # The norms of these gradients are smaller.
    proof = _convert(trained, output, "dropout_network", optimizer={**decayed, "clip_norm": 100})
    assert proof.draws == {"estimator": 1, "keras": 1}
    assert max(proof.next_steps.values()) <= 1e-5
    declared = _declared(output)
    assert (declared.path, declared.model, declared.params) == ("keras", f"{MODULE}:dropout_network", {"rate": 0.25})
    wanted = Optimizer(**decayed, clip_norm=100, beta_1=0.9, beta_2=0.999, epsilon=1e-8)
    assert declared.optimizer == wanted
    assert (declared.train_steps, declared.warm_start.step, declared.warm_start.resume) == (END, HALF, True)


@pytest.mark.long
@pytest.mark.equivalence
def test_the_moving_averages_of_a_model_fn_with_dropout_continue(half: Any, tmp_path: Path) -> None:
    params = {"filters": [4, 4], "units": 16, "rate": 0.4}
    trained, output = half(model="official_mnist:model_fn", params=params), tmp_path / "converted"
    proof = _convert(trained, output, "network", module="official_mnist")
    assert (proof.examples, proof.classes) == (360, 0)
    assert proof.compared == "probabilities"
    assert max(proof.logits.values()) <= 1e-6
    assert (proof.draws["keras"], proof.holds) == (1, True)
    # After other trainings in this process the half one differs: rounding moves its weights, by 3e-3 instead of 2e-6.
    assert proof.next_steps["loss"] <= 1e-4
    assert max(proof.next_steps.values()) <= 1e-2
    tensors = json.loads((output / "mapping.json").read_text())["tensors"]
    places = {each["tensor"]: each["place"] for each in tensors if "/moving_" in each["tensor"]}
    assert len(places) == 4
    stored = np.load(output / "weights.npz")
    before = tf.train.load_checkpoint(str(trained.folder / f"model.ckpt-{HALF}"))
    estimator = trained.train(HALF + 1)
    adam = {"name": "adam", "learning_rate": 0.001, "epsilon": 1e-8}
    trained.settings = trained.settings.with_trainer(model="official_mnist:network", optimizer=adam)
    keras = trained.keras(output / "checkpoints", HALF, more=1)
    for tensor, place in places.items():
        np.testing.assert_array_equal(stored[place], before.get_tensor(tensor))
        # One step updates them, independent of the dropout behind them.
        np.testing.assert_allclose(keras[place], estimator[tensor], rtol=1e-5, atol=1e-5)
        assert not np.allclose(keras[place], stored[place], atol=1e-4)


@pytest.mark.long
@pytest.mark.equivalence
def test_moving_averages_that_the_estimator_serves_are_those_of_model_keras(half: Any, tmp_path: Path) -> None:
    trained, output = half(model=f"{MODULE}:averaged", params={"update": "adam"}), tmp_path / "converted"
    proof = _convert(trained, output, "without_dropout", {r".*/ExponentialMovingAverage": None})
    assert (proof.examples, proof.classes, proof.holds) == (360, 0, True)
    assert max(*proof.logits.values(), *proof.next_steps.values()) <= 1e-5
    before = tf.train.load_checkpoint(str(trained.folder / f"model.ckpt-{HALF}"))
    served = tf.keras.models.load_model(output / "model.keras", compile=False)
    stored = np.load(output / "weights.npz")
    names = [each.name.partition(":")[0] for each in served.weights]
    assert proof.served == sorted(names)
    ends = trained.keras(output / "checkpoints", HALF, declared=_declared(output))
    for name, each in zip(names, served.weights):
        np.testing.assert_array_equal(each.numpy(), before.get_tensor(f"{name}/ExponentialMovingAverage"))
        np.testing.assert_array_equal(stored[name], before.get_tensor(name))
        np.testing.assert_array_equal(ends[name], before.get_tensor(name))
        assert np.abs(stored[name] - each.numpy()).max() > 1e-4
