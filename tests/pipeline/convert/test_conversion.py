"""An Estimator's training in mid-run, converted: equal answers, an equal next step, and an equal end."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.components.trainer.conftest import LABELS, SHAPE, Training, declaration, digits, tf_estimator, training  # noqa: F401
from tfx_estimator.pipeline.base.errors import DataError, NotEqualError, UserCodeError

HALF, END = 12, 24
NETWORKS = "converted_networks"
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"name": "sgd", "learning_rate": 0.05},
    "momentum": {"name": "momentum", "learning_rate": 0.02, "schedule": "cosine", "nesterov": False},
    "adam": {"name": "adam", "learning_rate": 0.002, "schedule": "cosine", "warmup_steps": 3},
    "rmsprop": {"name": "rmsprop", "learning_rate": 0.001, "centered": True, "momentum": 0.5},
    "adagrad": {"name": "adagrad", "learning_rate": 0.02},
    "ftrl": {"name": "ftrl", "learning_rate": 0.05},
}


class Half:
    """A training of an Estimator, at half of its steps.

    Args:
        folder: Of its checkpoints.
        inputs: The Trainer's artifacts.
        trainer: Entries of the declaration.
    """

    def __init__(self, folder: Path, inputs: dict[str, list[Any]], declared: dict[str, Any]) -> None:
        from tfx.components.trainer.fn_args_utils import FnArgs

        from tfx_estimator.components.trainer.estimator.trainer_fn import trainer_fn
        from tfx_estimator.components.trainer.settings import SETTINGS_KEY, Settings

        self.folder = folder
        self.settings = Settings(declaration=declared, image_shape=SHAPE, label_names=LABELS, path="estimator")
        self.inputs = inputs
        uris = {name: artifacts[0].uri for name, artifacts in inputs.items()}
        self._args = FnArgs(
            train_files=[f"{uris['examples']}/Split-train/*"],
            eval_files=[f"{uris['examples']}/Split-eval/*"],
            transform_output=uris["transform_graph"],
            model_run_dir=str(folder),
            custom_config={SETTINGS_KEY: self.settings},
        )
        self._trainer_fn = trainer_fn
        self.train(HALF)

    def train(self, steps: int) -> dict[str, np.ndarray]:
        """Trains on, and returns the tensors of the last checkpoint."""
        spec = self._trainer_fn(self._args, None)
        spec["estimator"].train(spec["train_spec"].input_fn, max_steps=steps)
        reader = tf.train.load_checkpoint(str(self.folder))
        return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}

    def source(self, network: str = "", step: int = HALF) -> Any:
        """What `convert` finds of it, trained by another network if one is named."""
        from tfx_estimator.pipeline.convert.source import Source

        settings = self.settings.with_trainer(model=f"{NETWORKS}:{network}") if network else self.settings
        checkpoint = str(self.folder / f"model.ckpt-{step}")
        return Source(None, checkpoint, step, settings, self.inputs, "")  # type: ignore[arg-type]

    def batches(self, at: int) -> tf.data.Dataset:
        """The run's own batches of training, from a step on."""
        from tfx_estimator.components.trainer.declared_input import declared_input

        return declared_input(self._args, self.settings.section, lambda: at).reader.input_fn("train")

    def keras(self, folder: Path, at: int, more: int = 0, declared: Any = None) -> dict[str, np.ndarray]:
        """Restores a checkpoint of the Keras path, trains on by its own step and input, and returns all values.

        Args:
            declared: The section `trainer` of a new.yaml, if not the Estimator's on the Keras path.
        """
        from tfx_estimator.components.trainer.declared_input import declared_input
        from tfx_estimator.components.trainer.keras.model import ModelMaker
        from tfx_estimator.components.trainer.keras.saving import Saver
        from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, TaskSpec
        from tfx_estimator.pipeline.convert.placing import Places

        section = declared or self.settings.with_trainer(path="keras").section
        reads = declared_input(self._args, section, lambda: at)
        model = ModelMaker(section, len(LABELS), reads.transformed_spec).make_compiled(1)
        assert Saver(model, str(folder), 1, TaskSpec(CHIEF, 0, 1)).restore() == at
        step = tf.function(model.train_step)
        for batch in reads.reader.input_fn("train").take(more):
            step(batch)
        places = Places(model)
        slots = {f"{name}/{slot}": each for (name, slot), each in places.slots.items()}
        return {name: each.numpy() for name, each in {**places.weights, **slots}.items()}


@pytest.fixture
def half(
    tmp_path: Path,
    digits: dict[str, list[Any]],  # noqa: F811
    declaration: Callable[..., dict[str, Any]],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Any]:
    """Trains to half of the steps; arguments are entries of `trainer`."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "user"))
    # Other tests may have left another one.
    tf.keras.mixed_precision.set_global_policy("float32")

    def make(**trainer: Any) -> Half:
        declared = declaration(**{"model": f"{NETWORKS}:small", "train_steps": END, **trainer})
        return Half(tmp_path / "estimator", digits, declared)

    yield make
    # Of the process, which declared precisions change.
    tf.keras.mixed_precision.set_global_policy("float32")


@pytest.mark.equivalence
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_next_step_and_the_end_are_those_of_the_estimator(half: Any, name: str, tmp_path: Path) -> None:
    from tfx_estimator.pipeline.convert.conversion import convert

    trained, output = half(optimizer=OPTIMIZERS[name]), tmp_path / "converted"
    proof = convert(trained.source(), str(output)).proof
    assert proof.examples == 360
    assert proof.classes == 0
    assert max(proof.logits.values()) <= 1e-6
    assert max(proof.next_step.values()) <= 1e-6
    assert json.loads((output / "proof.json").read_text())["holds"]
    places = {each["tensor"]: each["place"] for each in json.loads((output / "mapping.json").read_text())["tensors"]}
    stored = np.load(output / "weights.npz")
    before = tf.train.load_checkpoint(str(trained.folder / f"model.ckpt-{HALF}"))
    for tensor, place in places.items():
        np.testing.assert_array_equal(stored[place], before.get_tensor(tensor))
    end, moved = trained.train(END), 0.0
    for place, value in trained.keras(output / "checkpoints", HALF, END - HALF).items():
        tensor = next(tensor for tensor, at in places.items() if at == place)
        np.testing.assert_allclose(value, end[tensor], rtol=0, atol=1e-5, err_msg=place)
        moved = max(moved, float(np.abs(end[tensor] - stored[place]).max()))
    assert moved > 1e-3


@pytest.mark.equivalence
def test_what_is_not_that_network_is_refused_by_name_and_nothing_is_written(half: Any, tmp_path: Path) -> None:
    from tfx_estimator.pipeline.convert.conversion import convert

    trained, output = half(optimizer=OPTIMIZERS["momentum"]), tmp_path / "converted"
    wrong = {
        "with_a_layer_more": "more/kernel of the Keras model has no tensor",
        "of_another_size": "first/kernel is [324, 16], and first/kernel is [324, 24]",
        "renamed": "conv/kernel, a weight of shape [3, 3, 1, 4], has no place",
    }
    for network, words in wrong.items():
        with pytest.raises(UserCodeError, match=r"is not that of the Keras model") as refused:
            convert(trained.source(network), str(output))
        assert words in str(refused.value)
    (data,) = trained.folder.glob(f"model.ckpt-{HALF}.data-*")
    data.write_bytes(data.read_bytes()[:-100])
    with pytest.raises(UserCodeError, match="cannot be read"):
        convert(trained.source(), str(output))
    assert not list(tmp_path.glob("*convert*"))


@pytest.mark.equivalence
@pytest.mark.parametrize(("one", "other"), [("norm/gamma", "norm/moving_variance"), ("conv/kernel/momentum", None)])
def test_a_wrong_value_is_found_out(
    half: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: str, other: str | None
) -> None:
    from tfx_estimator.pipeline.convert import conversion

    def fill_wrongly(placed: list[Any], reader: Any) -> None:
        """Two weights of one shape change places, or one slot is left as it was made."""
        fill(placed, reader)
        at = {each.place: each.variable for each in placed}
        was = at[one].numpy()
        at[one].assign(at[other].numpy() if other else np.zeros_like(was))
        if other:
            at[other].assign(was)

    fill = conversion.fill
    monkeypatch.setattr(conversion, "fill", fill_wrongly)
    trained = half(optimizer=OPTIMIZERS["momentum"])
    with pytest.raises(NotEqualError, match=r"logits of the estimator: \d"):
        conversion.convert(trained.source(), str(tmp_path / "converted"))
    assert not list(tmp_path.glob("*convert*"))


@pytest.mark.equivalence
def test_it_proves_on_other_examples_and_refuses_what_is_none_of_the_kind(half: Any, tmp_path: Path) -> None:
    from tfx_estimator.pipeline.convert.conversion import convert
    from tfx_estimator.pipeline.convert.examples import files_of

    trained, output = half(optimizer=OPTIMIZERS["sgd"]), tmp_path / "converted"
    split = Path(trained.inputs["examples"][0].uri) / "Split-train"
    found = files_of(str(split))
    assert [Path(each).name for each in found] == sorted(each.name for each in split.iterdir())
    records = [record for file in found for record in tf.data.TFRecordDataset(file).as_numpy_iterator()]
    (tmp_path / "some").mkdir()
    _write(tmp_path / "some" / "of-them", records[:37])
    # As a shard that got none.
    _write(tmp_path / "some" / "none", [])
    source = trained.source()
    proof = convert(dataclasses.replace(source, examples=files_of(str(tmp_path / "some"))), str(output)).proof
    assert (proof.examples, proof.classes) == (37, 0)
    assert max(proof.logits.values()) <= 1e-6
    other = tf.train.Example(features=tf.train.Features(feature={"length": tf.train.Feature()}))
    _write(tmp_path / "other", [other.SerializeToString()])
    _write(tmp_path / "compressed", records[:3], "GZIP")
    for name, words in {"other": "(?s)label", "compressed": "corrupted", "some/none": "is empty"}.items():
        with pytest.raises(DataError, match=words):
            convert(dataclasses.replace(source, examples=files_of(str(tmp_path / name))), str(tmp_path / "wrong"))
    with pytest.raises(DataError, match="there is no file"):
        files_of(str(tmp_path / "nothing-*"))
    assert not (tmp_path / "wrong").exists()


def _write(path: Path, records: list[bytes], compression: str = "") -> None:
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)


@pytest.mark.equivalence
def test_the_next_step_in_bfloat16_is_that_of_the_estimator(half: Any, tmp_path: Path) -> None:
    from tfx_estimator.pipeline.convert.conversion import convert

    trained = half(optimizer=OPTIMIZERS["momentum"], precision="mixed_bfloat16")
    proof = convert(trained.source(), str(tmp_path / "converted")).proof
    assert proof.holds
    assert max(proof.logits.values()) <= 1e-6
    assert {"weight", "slot"} <= proof.next_step.keys()
    assert not proof.chance


@pytest.mark.equivalence
def test_dropout_is_converted_and_that_no_next_step_is_compared_is_said(half: Any, tmp_path: Path) -> None:
    from tfx_estimator.pipeline.convert.conversion import convert

    trained = half(optimizer=OPTIMIZERS["sgd"], model=f"{NETWORKS}:with_dropout")
    proof = convert(trained.source(), str(tmp_path / "converted")).proof
    assert proof.holds
    assert max(proof.logits.values()) <= 1e-6
    assert (proof.chance, proof.next_step) == (["dropped"], {})


@pytest.mark.equivalence
def test_the_trainer_goes_on_from_there(half: Any, training: Training, declaration: Any, tmp_path: Path) -> None:  # noqa: F811
    from tfx_estimator.components.trainer.settings import BUILT_IN_RUN_FN, Settings
    from tfx_estimator.pipeline.convert.conversion import convert

    trained, output = half(optimizer=OPTIMIZERS["adam"]), tmp_path / "converted"
    convert(trained.source(), str(output))
    begins = {"checkpoint": str(output / "checkpoints"), "resume": True}
    trainer = {**trained.settings.declaration["trainer"], "path": "keras", "warm_start": begins}
    keras = Settings(declaration=declaration(**trainer), image_shape=SHAPE, label_names=LABELS, path="keras")
    _, run = training.run(keras, END, run_fn=BUILT_IN_RUN_FN)
    end = trained.train(END)
    for place, value in trained.keras(Path(run.uri), END).items():
        name = place if place in end else f"Adam/{place}"
        np.testing.assert_allclose(value, end[name], rtol=0, atol=1e-5, err_msg=place)
    # For the training's report.
    assert (Path(run.uri) / "proof.json").read_text() == (output / "proof.json").read_text()
