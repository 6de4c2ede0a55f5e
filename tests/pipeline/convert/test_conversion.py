"""Conversion of an Estimator's training in mid-run: equal outputs, an equal next step, and an equal end."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import yaml

from tests.artifacts import example, write_records
from tests.components.trainer.conftest import LABELS, SHAPE, Training, training  # noqa: F401
from tests.pipeline.convert.half import END, HALF, NETWORKS, OPTIMIZERS, Half
from tfx_estimator.components.trainer.settings import BUILT_IN_RUN_FN, Settings
from tfx_estimator.model_fn.bridge.examples import files_of
from tfx_estimator.pipeline.base.errors import DataError, NotEqualError, UserCodeError
from tfx_estimator.pipeline.convert import conversion, keras2
from tfx_estimator.pipeline.convert.conversion import convert


def _converted(trained: Half, output: Path) -> dict[str, str]:
    """Converts and checks the proof; returns tensor names by place."""
    proof = convert(trained.source(), str(output))
    assert proof.examples == 360
    assert proof.classes == 0
    assert max(proof.logits.values()) <= 1e-6
    assert max(proof.next_steps.values()) <= 1e-5
    assert not proof.wrong
    assert json.loads((output / "proof.json").read_text())["holds"]
    tensors = json.loads((output / "mapping.json").read_text())["tensors"]
    stored = np.load(output / "weights.npz")
    before = tf.train.load_checkpoint(str(trained.folder / f"model.ckpt-{HALF}"))
    for each in tensors:
        np.testing.assert_array_equal(stored[each["place"]], before.get_tensor(each["tensor"]))
    return {each["place"]: each["tensor"] for each in tensors}


def _assert_equal(ended: dict[str, np.ndarray], end: dict[str, np.ndarray], places: dict[str, str], half: Path) -> None:
    """Checks that Keras's final values equal the Estimator's, by place, and differ from the converted ones."""
    stored = np.load(half / "weights.npz")
    for place, value in ended.items():
        np.testing.assert_allclose(value, end[places[place]], rtol=0, atol=1e-5, err_msg=place)
    assert max(float(np.abs(end[places[place]] - stored[place]).max()) for place in ended) > 1e-3


@pytest.mark.equivalence
@pytest.mark.parametrize(
    "name",
    # Adam and the next steps of the others are tested below or with model_fns.
    [name if name == "momentum" else pytest.param(name, marks=pytest.mark.long) for name in OPTIMIZERS],
)
def test_the_next_steps_and_the_final_weights_equal_the_estimators(half: Any, name: str, tmp_path: Path) -> None:
    trained, output = half(optimizer=OPTIMIZERS[name]), tmp_path / "converted"
    places = _converted(trained, output)
    _assert_equal(trained.keras(output / "checkpoints", HALF, END - HALF), trained.train(END), places, output)


@pytest.mark.equivalence
def test_another_network_or_a_damaged_checkpoint_is_refused_and_nothing_is_written(half: Any, tmp_path: Path) -> None:
    trained, output = half(optimizer=OPTIMIZERS["momentum"]), tmp_path / "converted"
    wrong = {
        "with_a_layer_more": "more/kernel of the Keras model has no tensor",
        "of_another_size": "first/kernel is [324, 16], and first/kernel is [324, 24]",
        "renamed": "conv/kernel, a weight of shape [3, 3, 1, 4], has no place",
    }
    for network, words in wrong.items():
        with pytest.raises(UserCodeError, match=r"does not match the Keras model") as refused:
            convert(trained.source(network), str(output))
        assert words in str(refused.value)
    trained.folder = Path(shutil.copytree(trained.folder, tmp_path / "damaged"))
    (data,) = trained.folder.glob(f"model.ckpt-{HALF}.data-*")
    data.write_bytes(data.read_bytes()[:-100])
    with pytest.raises(UserCodeError, match="cannot be read"):
        convert(trained.source(), str(output))
    assert not list(tmp_path.glob("*convert*"))


@pytest.mark.equivalence
def test_a_wrong_value_fails_the_proof(
    half: Any, runs_once: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill, trained = keras2.fill, half(optimizer=OPTIMIZERS["momentum"])
    # Two weights of equal shape change places, or one slot keeps its initial value.
    for one, other in (("norm/gamma", "norm/moving_variance"), ("conv/kernel/momentum", None)):

        def fill_wrongly(model: Any, placed: list[Any], reader: Any, one: str = one, other: str | None = other) -> None:
            fill(model, placed, reader)
            at = model.variables
            was = at[one].numpy()
            at[one].assign(at[other].numpy() if other else np.zeros_like(was))
            if other:
                at[other].assign(was)

        monkeypatch.setattr(keras2, "fill", fill_wrongly)
        with pytest.raises(NotEqualError, match=r"logits of the estimator: \d"):
            conversion.convert(trained.source(), str(tmp_path / "converted"))
        assert not list(tmp_path.glob("*convert*"))


@pytest.mark.equivalence
def test_a_proof_can_use_other_examples_and_refuses_unusable_files(half: Any, tmp_path: Path) -> None:
    trained, output = half(optimizer=OPTIMIZERS["sgd"]), tmp_path / "converted"
    split = Path(trained.inputs["examples"][0].uri) / "Split-train"
    found = files_of(str(split))
    assert [Path(each).name for each in found] == sorted(each.name for each in split.iterdir())
    records = [record for file in found for record in tf.data.TFRecordDataset(file).as_numpy_iterator()]
    (tmp_path / "some").mkdir()
    write_records(tmp_path / "some" / "of-them", records[:37])
    # An empty shard.
    write_records(tmp_path / "some" / "none", [])
    source = trained.source()
    proof = convert(dataclasses.replace(source, examples=files_of(str(tmp_path / "some"))), str(output))
    assert (proof.examples, proof.classes) == (37, 0)
    assert max(*proof.logits.values(), *proof.next_steps.values()) <= 1e-5
    write_records(tmp_path / "other", [example(length=1)])
    plain = Path(write_records(tmp_path / "plain", records[:3]))
    (tmp_path / "compressed").write_bytes(gzip.compress(plain.read_bytes()))
    for name, words in {"other": "(?s)label", "compressed": "corrupted", "some/none": "is empty"}.items():
        with pytest.raises(DataError, match=words):
            convert(dataclasses.replace(source, examples=files_of(str(tmp_path / name))), str(tmp_path / "wrong"))
    with pytest.raises(DataError, match="there is no file"):
        files_of(str(tmp_path / "nothing-*"))
    assert not (tmp_path / "wrong").exists()


@pytest.mark.long
@pytest.mark.equivalence
def test_the_next_steps_in_bfloat16_equals_the_estimators(half: Any, tmp_path: Path) -> None:
    trained = half(optimizer=OPTIMIZERS["adagrad"], precision="mixed_bfloat16")
    proof = convert(trained.source(), str(tmp_path / "converted"))
    assert proof.holds
    assert max(proof.logits.values()) <= 1e-6
    assert {"weight", "slot"} <= proof.next_steps.keys()


@pytest.mark.equivalence
def test_dropout_draws_the_same_in_the_next_steps_of_both(half: Any, tmp_path: Path) -> None:
    trained, output = half(optimizer=OPTIMIZERS["sgd"], model=f"{NETWORKS}:with_dropout"), tmp_path / "converted"
    trained.settings = trained.settings.with_trainer(train_steps=None, train_epochs=1)
    proof = convert(trained.source(), str(output))
    assert proof.holds
    assert max(proof.logits.values()) <= 1e-6
    assert proof.draws == {"estimator": 1, "keras": 1}
    assert max(proof.next_steps.values()) <= 1e-5
    # With declared epochs, training continues for as many steps again.
    trainer = yaml.safe_load((output / "new.yaml").read_text())["trainer"]
    assert (trainer["train_steps"], trainer.get("train_epochs")) == (2 * HALF, None)


@pytest.mark.long
@pytest.mark.equivalence
def test_the_trainer_resumes_from_there(half: Any, training: Training, declaration: Any, tmp_path: Path) -> None:  # noqa: F811
    trained, output = half(optimizer=OPTIMIZERS["adam"]), tmp_path / "converted"
    places = _converted(trained, output)
    begins = {"checkpoint": str(output / "checkpoints"), "resume": True}
    trainer = {**trained.settings.declaration["trainer"], "path": "keras", "warm_start": begins}
    keras = Settings(declaration=declaration(**trainer), image_shape=SHAPE, label_names=LABELS, path="keras")
    _, run = training.run(keras, END, run_fn=BUILT_IN_RUN_FN)
    _assert_equal(trained.keras(Path(run.uri), END), trained.train(END), places, output)
    # For the training's report.
    assert (Path(run.uri) / "proof.json").read_text() == (output / "proof.json").read_text()
