"""Conversions of an Estimator's training in mid-run to Keras 3, where the written source finishes it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.model_fn.bridge.keras3 import USER, Keras3
from tests.pipeline.convert.half import END, HALF, NETWORKS, OPTIMIZERS, Half
from tests.root import run_python
from tests.stack import needs_keras_3
from tfx_estimator.components.trainer.task.user_code import find_function
from tfx_estimator.model_fn.bridge import fresh, placing, session, steps, tensors
from tfx_estimator.model_fn.bridge.keras3.writing import Training
from tfx_estimator.model_fn.user_models.keras_model import inputs_of
from tfx_estimator.pipeline.base.errors import DeclarationError, NotEqualError, UserCodeError
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.convert.conversion import KERAS3, convert
from tfx_estimator.pipeline.convert.keras3 import handing
from tfx_estimator.pipeline.user_source import loader

STEPS = {**OPTIMIZERS, "nesterov": {"name": "sgd", "learning_rate": 0.05, "momentum": 0.9, "nesterov": True}}

HIDING = """
import tensorflow as tf
from factor_of_it import FACTOR


class Doubled(tf.keras.layers.Layer):
    def call(self, inputs):
        return FACTOR * inputs


def network(num_classes):
    layers = [tf.keras.layers.Flatten(), Doubled(), tf.keras.layers.Dense(num_classes, name="logits")]
    return tf.keras.Sequential([tf.keras.Input((28, 28, 1)), *layers])
"""


def converted(trained: Half, output: Path) -> Any:
    """Converts to Keras 3, and returns the proof."""
    return convert(trained.source(), str(output), KERAS3)


def to_the_end(keras3: Keras3, trained: Half, output: Path, *ways: str) -> list[float]:
    """Finishes training on the run's batches; returns each way's largest difference from the Estimator."""
    batches = list(trained.batches(HALF).take(END - HALF).as_numpy_iterator())
    images, labels = (np.stack(each) for each in zip(*((features["image"], labels) for features, labels in batches)))
    np.savez(output / "batches.npz", images=images, labels=labels)
    end = trained.train(END)
    begun, tensors = np.load(output / "weights.npz"), json.loads((output / "mapping.json").read_text())["tensors"]
    moved, differences = 0.0, []
    for way in ways:
        keras3.do("train", str(output), str(output / "batches.npz"), way)
        values = np.load(output / f"{way}.npz")
        pairs = [(end[each["tensor"]], each["place"]) for each in tensors if each["place"]]
        differences.append(max(float(np.abs(one - values[place]).max()) for one, place in pairs))
        moved = max(float(np.abs(one - begun[place]).max()) for one, place in pairs if is_of_floats(one))
    assert moved > 1e-3
    return differences


def is_of_floats(value: np.ndarray) -> bool:
    """True unless the value is a step counter."""
    return value.dtype == np.float32


@needs_keras_3
@pytest.mark.equivalence
@pytest.mark.long
@pytest.mark.parametrize("name", STEPS)
def test_a_plain_loop_ends_with_the_estimators_weights(half: Any, keras3: Keras3, name: str, tmp_path: Path) -> None:
    # Adam scales up the rounding errors of a zero gradient: see below.
    network = "without_bias" if name == "adam" else "small"
    trained, output = half(model=f"{NETWORKS}:{network}", optimizer=STEPS[name]), tmp_path / "converted"
    proof = converted(trained, output)
    assert proof.examples == 360
    assert proof.classes == 0
    assert set(proof.next_steps) >= {"loss", "weight"}
    assert proof.logits["estimator"] <= 1e-6
    assert not proof.wrong
    # In a slot of Ftrl rounding makes so much.
    assert max(proof.next_steps.values()) <= 1e-3
    assert {each.name for each in output.iterdir()} == {
        "mapping.json",
        "model.keras",
        "proof.json",
        "training.py",
        "weights.npz",
    }
    assert json.loads((output / "proof.json").read_text())["logits"] == proof.logits
    assert max(to_the_end(keras3, trained, output, "loop", "fit")) <= 1e-5


@pytest.mark.long
@needs_keras_3
@pytest.mark.equivalence
def test_weights_that_are_only_rounding_are_excluded_and_listed(half: Any, keras3: Keras3, tmp_path: Path) -> None:
    section = {"model": f"{NETWORKS}:normalised_twice", "optimizer": {**OPTIMIZERS["adam"], "epsilon": 1e-11}}
    proof = converted(half(**section), tmp_path / "converted")
    assert {"conv/bias", "optimizer/conv_bias_momentum"} <= set(proof.rounding)
    assert max(proof.next_steps.values()) <= 1e-4


@pytest.mark.long
@needs_keras_3
@pytest.mark.equivalence
def test_gradients_of_repeated_embedding_rows_are_summed(half: Any, keras3: Keras3, tmp_path: Path) -> None:
    trained, output = half(model=f"{NETWORKS}:with_embedding", optimizer=OPTIMIZERS["adagrad"]), tmp_path / "converted"
    assert max(converted(trained, output).next_steps.values()) <= 1e-4
    dense, as_they_come = to_the_end(keras3, trained, output, "loop", "rows")
    assert dense <= 1e-5
    assert as_they_come > 1e-3
    assert "from converted_networks import Buckets\n" in (output / "training.py").read_text()
    assert (output / "converted_networks.py").read_bytes() == (USER / "converted_networks.py").read_bytes()


@needs_keras_3
@pytest.mark.equivalence
@pytest.mark.long
def test_a_module_that_shadows_an_installed_one_is_copied_with_its_imports(
    half: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, output = tmp_path / "user", tmp_path / "converted"
    user.mkdir()
    (user / "factor_of_it.py").write_text("FACTOR = 2.0\n")
    (user / "tabnanny.py").write_text(HIDING)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "path_hooks", [*sys.path_hooks])
    loader.install([str(user)])
    converted(half(model="tabnanny:network", optimizer=OPTIMIZERS["sgd"]), output)
    assert "from tabnanny import Doubled\n" in (output / "training.py").read_text()
    code = "import training; print(training.load()[0].layers[1].__module__)"
    alone = run_python("-c", code, cwd=output, code=0, **{stacks.KERAS: "0", "PYTHONPATH": ""})
    assert alone.stdout == "tabnanny\n"


@needs_keras_3
@pytest.mark.equivalence
def test_loss_penalty_and_clipping_follow_the_declaration(half: Any, keras3: Keras3, tmp_path: Path) -> None:
    optimizer = {**OPTIMIZERS["momentum"], "weight_decay": 0.01, "decoupled_weight_decay": 0.1, "clip_norm": 0.2}
    more = {"label_smoothing": 0.1, "class_weights": {"3": 4.0, "7": 0.5}, "augment": [{"random_crop": {"padding": 2}}]}
    trained, output = half(optimizer=optimizer, **more), tmp_path / "converted"
    # The training had one replica; the source's remark on several comes from the declaration.
    trained.settings = trained.settings.with_trainer(distribution={"train": "mirrored:2"}, gradient_accumulation=2)
    assert max(converted(trained, output).next_steps.values()) <= 1e-4
    source = (output / "training.py").read_text()
    assert "`fit` would omit the weight decay: use train_step." in source
    assert "were then augmented by trainer.augment, in this order:\n    random_crop: padding 2, fill zero\n" in source
    assert "The Estimator normalised each of the 4 parts of a batch separately" in source
    assert to_the_end(keras3, trained, output, "loop")[0] <= 1e-5


@needs_keras_3
@pytest.mark.equivalence
def test_a_network_that_keras_3_cannot_build_is_reported_with_its_line(
    half: Any, keras3: Keras3, tmp_path: Path
) -> None:
    trained = half(model=f"{NETWORKS}:of_keras_2", optimizer=OPTIMIZERS["sgd"])
    with pytest.raises(
        UserCodeError, match=r"Keras 3 cannot build 'converted_networks:of_keras_2': \w+Error: "
    ) as refused:
        converted(trained, tmp_path / "converted")
    assert 'self.add_weight("factor", [1], initializer="ones")' in str(refused.value)
    assert not list(tmp_path.glob("*convert*"))


def hand_over(
    folder: Path, target: str, features: dict[str, np.ndarray], names: Callable[[str], str] = str
) -> dict[str, Any]:
    """Returns the result of the process with Keras 3 for a Keras 2 network of random weights.

    Args:
        features: The features of some examples.
        names: Returns the name of a weight in the checkpoint.
    """
    # As in an Estimator's graph, which counts its layers from the start.
    tf.keras.backend.clear_session()
    draw, network = np.random.default_rng(3), find_function(target)(10)
    given = inputs_of(network, features)
    network(given)
    for each in network.weights:
        value = each + draw.normal(size=each.shape, scale=0.05)
        each.assign(tf.abs(value) if "variance" in each.name else value)
    logits = network(given, training=False).numpy()
    of = {kind: [names(each.name.removesuffix(":0")) for each in getattr(network, kind)] for kind in WEIGHTS}
    values = dict(zip(of["trainable_weights"], network.trainable_weights))
    values |= dict(zip(of["non_trainable_weights"], network.non_trainable_weights))
    values |= {"global_step": tf.constant(5, tf.int64)}
    checkpoint = str(folder / "model.ckpt")
    tf.raw_ops.SaveV2(
        prefix=checkpoint, tensor_names=[*values], shape_and_slices=[""] * len(values), tensors=[*values.values()]
    )
    batch, trained = session.Batch(features, np.zeros(4, np.int64)), steps.Trained(str(folder), [], 0)
    training = Training(
        step=5, options=Optimizer(name="sgd").resolved(), rate=("", "0.1"), classes=10, label_smoothing=0.0,
        class_weights=[], batch=4, augment=[], normalised_parts=1,
    )  # fmt: skip
    request = {
        "folder": str(folder),
        "checkpoint": checkpoint,
        "tensors": tensors.read(checkpoint)[1],
        "guide": placing.Guide({}, of["trainable_weights"], of["non_trainable_weights"]),
        "served": {},
        "target": target if ":" in target else f"tfx_estimator.model_fn.networks:{target}",
        "given": [10],
        "named": {},
        "training": training,
        "seed": 42,
        "example": features,
        "trained": trained,
    }
    program = fresh.program("tfx_estimator.pipeline.convert.keras3.process", "convert")
    answers = [(session.ESTIMATOR, session.LOGITS, batch, logits)]
    return {**fresh.ask(loader.fresh_python(program), request, [batch], answers), "largest": np.abs(logits).max()}


WEIGHTS = ("trainable_weights", "non_trainable_weights")


@needs_keras_3
@pytest.mark.parametrize(
    "name",
    [
        "cifar_resnet9",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("mnist_cnn", "cifar_cnn", "cifar_resnet")),
    ],
)
def test_the_built_in_networks_equal_those_of_keras_2(keras3: Keras3, name: str, tmp_path: Path) -> None:
    images = np.random.default_rng(3).normal(size=(4, 32, 32, 3)).astype("float32")
    result = hand_over(tmp_path, name, {"image": images})
    assert result["logits"]["estimator"] <= 1e-5 * result["largest"]
    assert {rule for _, rule in result["places"].values()} == {"same name"}


@needs_keras_3
@pytest.mark.parametrize("name", ["of_named_inputs", "of_keyed_inputs"])
def test_inputs_are_matched_by_name_and_renamed_layers_by_order(
    keras3: Keras3, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(USER))
    draw = np.random.default_rng(3).normal
    features = {"wide": draw(size=(4, 2)).astype("float32"), "deep": draw(size=(4, 3)).astype("float32")}
    result = hand_over(tmp_path, f"{NETWORKS}:{name}", features, lambda name: name.replace("dense", "one"))
    assert result["logits"]["estimator"] <= 1e-6
    assert result["places"]["one_1/kernel"] == ("dense_1/kernel", "order of creation")
    assert "wide: float32 [batch, 2]" in (tmp_path / "training.py").read_text()


@needs_keras_3
def test_a_subclassed_model_gets_all_features(keras3: Keras3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(USER))
    draw = np.random.default_rng(3).normal
    features = {"image": draw(size=(4, 3)).astype("float32"), "wide": draw(size=(4, 2)).astype("float32")}
    result = hand_over(tmp_path, f"{NETWORKS}:OfClass", features)
    assert result["logits"]["estimator"] <= 1e-6
    assert "features are a dict of tensors" in (tmp_path / "training.py").read_text()


@needs_keras_3
def test_weights_matched_by_neither_name_nor_order_are_reported(keras3: Keras3, tmp_path: Path) -> None:
    images = np.zeros((4, 28, 28, 1), np.float32)
    with pytest.raises(UserCodeError) as wrong:
        hand_over(tmp_path, "mnist_cnn", {"image": images}, lambda name: name.replace("logits/kernel", "other/weights"))
    assert "logits/kernel of the Keras model has no tensor" in str(wrong.value)
    assert "other/weights, a weight of shape [64, 10], has no place; a line of --map gives it one" in str(wrong.value)


@needs_keras_3
@pytest.mark.equivalence
@pytest.mark.parametrize(
    ("wrong", "by"),
    [
        ("conv/kernel/momentum", 0.1),
        pytest.param("norm/moving_mean", 0.1, marks=pytest.mark.long),
        pytest.param("logits/bias/momentum", np.nan, marks=pytest.mark.long),
    ],
)
def test_a_wrong_value_fails_the_proof(
    half: Any, keras3: Keras3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: str, by: float
) -> None:
    def ask(command: list[str], request: dict[str, Any], *streams: Any) -> Any:
        """Hands over another checkpoint."""
        changed = shutil.copytree(Path(request["checkpoint"]).parent, tmp_path / "changed")
        request["checkpoint"] = str(changed / Path(request["checkpoint"]).name)
        reader = tf.train.load_checkpoint(request["checkpoint"])
        values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
        (changes,) = [each for each in values if each.endswith(wrong)]
        values[changes] = values[changes] + by
        cuts = [""] * len(values)
        tf.raw_ops.SaveV2(
            prefix=request["checkpoint"], tensor_names=[*values], shape_and_slices=cuts, tensors=[*values.values()]
        )
        return begin(command, request, *streams)

    begin = fresh.ask
    monkeypatch.setattr(fresh, "ask", ask)
    with pytest.raises(NotEqualError, match=r"logits of the estimator|tensors that differ"):
        converted(half(optimizer=OPTIMIZERS["momentum"]), tmp_path / "converted")
    assert not list(tmp_path.glob("*convert*"))


@needs_keras_3
@pytest.mark.long
@pytest.mark.equivalence
def test_an_omitted_weight_decay_fails_the_proof(
    half: Any, keras3: Keras3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ask(command: list[str], request: dict[str, Any], *streams: Any) -> Any:
        training = request["training"]
        options = {**training.options, "weight_decay": 0.0}
        return begin(command, {**request, "training": dataclasses.replace(training, options=options)}, *streams)

    begin = fresh.ask
    monkeypatch.setattr(fresh, "ask", ask)
    # In the weights, it is below the tolerance of their difference.
    with pytest.raises(NotEqualError):
        converted(half(optimizer={**OPTIMIZERS["sgd"], "weight_decay": 5e-4}), tmp_path / "converted")


def test_a_module_with_the_name_of_a_written_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "training.py").write_text("class Doubled: ...\n")
    (tmp_path / "written").mkdir()
    with pytest.raises(UserCodeError, match=r"the module training, .* cannot be copied next to training\.py"):
        handing.copy(str(tmp_path / "written"), {"training": str(tmp_path)})


def test_where_keras_3_is_missing_is_named_what_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tfx_estimator.model_fn.bridge import convert as door
    from tfx_estimator.pipeline.commands import convert

    monkeypatch.setattr(door, "has_keras_3", lambda: False)
    parser = argparse.ArgumentParser()
    convert.add_arguments(parser)
    args = parser.parse_args([str(tmp_path), "--to", "keras3", "--output", str(tmp_path / "converted")])
    with pytest.raises(DeclarationError, match=r"there is no Keras 3 here\n *expected: TensorFlow from 2\.16 on"):
        convert.run(args)
