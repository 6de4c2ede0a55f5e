"""The checkpoints of a Keras training, and folders that were moved, damaged, or belong to something else."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.refusals import refused
from tfx_estimator.components.trainer.estimator.checkpoints import TrainingCheckpoints
from tfx_estimator.components.trainer.keras.saving import Saver, restore_weights
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, WORKER, TaskSpec
from tfx_estimator.model_fn.user_models.warm_start import warm_keras
from tfx_estimator.pipeline.base.errors import TrainingError, UserCodeError


class Model(tf.keras.Model):
    """A model of one weight, with an optimizer that has slots for it."""

    def __init__(self, size: int = 3, optimizer: str = "Adam") -> None:
        super().__init__()
        self.weight = tf.Variable(tf.zeros([size]))
        self.compile(optimizer=getattr(tf.keras.optimizers.legacy, optimizer)())
        self.optimizer._create_all_weights([self.weight])

    def train(self) -> None:
        self.optimizer.apply_gradients([(tf.ones_like(self.weight), self.weight)])

    def state(self) -> list[np.ndarray]:
        return [self.weight.numpy(), *(each.numpy() for each in self.optimizer.variables())]


def make(folder, model, keep=3, kind=CHIEF):
    return Saver(model, str(folder), keep, TaskSpec(kind, 0, 1))


def saved(folder) -> list[int]:
    return sorted(int(path.stem.rsplit("-", 1)[-1]) for path in folder.glob("model.ckpt-*.index"))


@pytest.fixture
def trained(tmp_path):
    """A folder with the checkpoints of steps 30, 40 and 50, and the model's state at each."""
    folder, model = tmp_path / "training", Model()
    saver, states = make(folder, model), {}
    for step in (10, 20, 30, 40, 50):
        model.train()
        saver.save(step)
        states[step] = model.state()
    return folder, states


def restored(folder) -> tuple[int, list[np.ndarray]]:
    model = Model()
    return make(folder, model).restore(), model.state()


def test_the_newest_are_kept_and_restored_with_the_optimizers_slots(trained, tmp_path):
    folder, states = trained
    assert saved(folder) == [30, 40, 50]
    step, state = restored(folder)
    assert step == 50
    assert len(state) == 4  # the weight, Adam's step, and its two slots
    for one, other in zip(state, states[50]):
        np.testing.assert_array_equal(one, other)
    assert make(tmp_path / "empty", Model()).restore() == 0


@pytest.mark.parametrize("other", [{"size": 4}, {"optimizer": "Ftrl"}])
def test_only_the_model_of_the_earlier_day_goes_on(tmp_path, other):
    make(tmp_path, Model()).save(0)
    with refused(UserCodeError, "another than that of the earlier day", todo="--set trainer.warm_start=null"):
        make(tmp_path, Model(**other)).restore(goes_on=True)
    assert make(tmp_path, Model()).restore(goes_on=True) == 0


def test_training_resumes_in_a_moved_folder_which_stays_bounded(trained, tmp_path):
    folder, _ = trained
    TrainingCheckpoints(str(folder)).tidy()
    moved = tmp_path / "elsewhere" / "moved"
    moved.parent.mkdir()
    shutil.move(folder, moved)
    model = Model()
    saver = make(moved, model)
    assert saver.restore() == 50
    saver.save(60)
    assert saved(moved) == [40, 50, 60]
    assert not folder.exists()


@pytest.mark.parametrize("suffix", ["index", "data-00000-of-00001"])
def test_training_resumes_from_the_checkpoint_before_a_damaged_one(trained, suffix):
    folder, states = trained
    path = folder / f"model.ckpt-50.{suffix}"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert TrainingCheckpoints(str(folder)).drop_damaged() == 40
    model = Model()
    saver = make(folder, model)
    assert saver.restore() == 40
    np.testing.assert_array_equal(model.weight.numpy(), states[40][0])
    for step in (50, 60):
        saver.save(step)
    assert saved(folder) == [40, 50, 60]


def test_remains_of_a_killed_save_are_no_checkpoint_and_are_removed(trained):
    folder, _ = trained
    draft = folder / "model.ckpt-60_temp"
    draft.mkdir()
    (draft / "part-00000-of-00001.data-00000-of-00001").write_bytes(b"half")
    (folder / "model.ckpt-60.data-00000-of-00001").write_bytes(b"half")
    checkpoints = TrainingCheckpoints(str(folder))
    assert checkpoints.drop_damaged() == 50
    assert restored(folder)[0] == 50
    checkpoints.tidy()
    assert not draft.exists()


@pytest.mark.parametrize("other", [Model(size=4), Model(optimizer="Adagrad")])
def test_a_checkpoint_of_something_else_is_refused(trained, other):
    folder, _ = trained
    with pytest.raises(TrainingError, match=r"model\.ckpt-50 does not fit the model") as caught:
        make(folder, other).restore()
    assert str(folder) in caught.value.todo


class Scored(tf.keras.Model):
    """A model with a metric that creates its variables on first use."""

    def __init__(self, size: int = 3) -> None:
        super().__init__()
        self.dense = tf.keras.layers.Dense(size)
        self.f1 = tf.keras.metrics.F1Score(average="micro")
        self.compile(optimizer="sgd")
        self.build((None, 2))

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.dense(inputs)

    def evaluate_batch(self) -> None:
        self.f1.update_state(tf.eye(self.dense.units), tf.eye(self.dense.units))


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_metrics_created_in_an_evaluation_are_not_expected_in_a_checkpoint(tmp_path, precision):
    tf.keras.mixed_precision.set_global_policy(precision)
    try:
        trained, evaluated = Scored(), Scored()
        other = Scored(size=4)
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    saver = make(tmp_path, trained)
    for step in (1, 2):
        trained.dense.kernel.assign_add(tf.ones_like(trained.dense.kernel))
        saver.save(step)
        restore_weights(evaluated, tf.train.latest_checkpoint(str(tmp_path)))
        np.testing.assert_array_equal(evaluated.dense.kernel.numpy(), trained.dense.kernel.numpy())
        evaluated.evaluate_batch()
    assert evaluated.f1.variables

    # Missing variables of the model itself are still an error.
    evaluated.late = tf.keras.layers.Dense(1)
    evaluated.late.build((None, 2))
    with pytest.raises(AssertionError):
        restore_weights(evaluated, tf.train.latest_checkpoint(str(tmp_path)))
    with pytest.raises(ValueError, match="shape"):
        restore_weights(other, tf.train.latest_checkpoint(str(tmp_path)))


def test_a_workers_own_checkpoints_are_not_kept(trained):
    folder, _ = trained
    model = Model()
    saver = make(folder, model, kind=WORKER)
    assert saver.restore() == 50
    for step in (60, 70):
        saver.save(step)
    assert tf.train.latest_checkpoint(str(folder)).endswith("model.ckpt-50")
    assert saved(folder / "tmp_worker_0") == [70]
    TrainingCheckpoints(str(folder)).tidy()
    assert not (folder / "tmp_worker_0").exists()


class Normalised(tf.keras.Model):
    """A model with a layer that keeps a mean besides its variables, and a metric that creates its variables late."""

    def __init__(self, mean: float) -> None:
        super().__init__()
        norm = tf.keras.layers.Normalization(axis=-1, name="norm", input_shape=(1,))
        norm.adapt(np.array([[mean - 1], [mean + 1]], np.float32))
        self.inner = tf.keras.Sequential([norm, tf.keras.layers.Dense(1, kernel_initializer="ones")])
        self.f1 = tf.keras.metrics.F1Score(average="micro")
        self.compile(optimizer="sgd")
        self(tf.zeros([1, 1]))

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.inner(inputs)


@pytest.mark.parametrize("how", ["training", "weights", "late metric", "warm start"])
def test_a_normalisation_uses_the_restored_mean(tmp_path, how):
    trained, other = Normalised(5.0), Normalised(-3.0)
    make(tmp_path, trained).save(1)
    path = tf.train.latest_checkpoint(str(tmp_path))
    if how == "training":
        assert make(tmp_path, other).restore() == 1
    elif how == "warm start":
        warm_keras(other, path, ())
    else:
        if how == "late metric":
            other.f1.update_state(tf.eye(3), tf.eye(3))
        restore_weights(other, path)
    np.testing.assert_array_equal(other(tf.constant([[7.0]])), trained(tf.constant([[7.0]])))
