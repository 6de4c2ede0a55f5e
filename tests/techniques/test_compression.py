"""`gradient_compression`: bytes on the wire, and the accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.components.trainer.conftest import Training
from tests.equivalence.conftest import first_images, write_inputs
from tests.techniques import wire
from tfx_estimator.model_fn.optim.gradients import compress, restore

WORKERS = {"strategy": "multi_worker_mirrored", "workers": 2}
STEPS = 600


def _declared(kind: str) -> dict:
    return {"distribution": {"train": {**WORKERS, "gradient_compression": kind}}}


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("kind", "size"), [("none", 4), ("fp16", 2), ("bf16", 2)])
def test_an_entry_has_few_bytes_on_the_wire_and_the_replicas_stay_equal(kind, size, two_workers):
    first, second = two_workers[kind]
    # In a ring of two, each process sends half of the entries, and then half of the sums.
    sent = min(first["bytes"], second["bytes"]) / wire.STEPS / first["parameters"] / 2
    assert 0.9 * size <= sent < 1.3 * size
    assert first["weights"] == second["weights"]
    assert first["loss"] == second["loss"]
    plain = two_workers["none"][0]
    assert first["loss"] == pytest.approx(plain["loss"], abs=0.01)
    assert (first["weights"] == plain["weights"]) == (kind == "none")


@pytest.fixture(scope="module")
def mnist(tmp_path_factory, real_data_dir):
    """Input artifacts of real images, with enough for evaluation that 0.5 points are more than chance."""
    home = tmp_path_factory.mktemp("mnist")
    parts = (("train", "train", 20_000), ("eval", "test", 10_000))
    return write_inputs(
        home, {split: first_images(real_data_dir, "mnist", part, count) for split, part, count in parts}, exact=False
    )


@pytest.fixture(scope="module")
def uncompressed(tmp_path_factory, mnist, settings):
    return _accuracy(Training(tmp_path_factory.mktemp("Trainer"), mnist), settings, "keras", "none")


def _accuracy(training, settings, path, kind):
    trainer = {**_declared(kind), "path": path, "train_steps": STEPS, "save_checkpoints_steps": STEPS}
    _, run = training.run(settings({**trainer, "global_batch_size": 64}), steps=STEPS)
    assert run.get_float_custom_property("last_step") == STEPS
    return run.get_float_custom_property("eval_accuracy")


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("path", "kind"), [("estimator", "fp16"), ("keras", "bf16"), ("keras_custom_loop", "fp16")])
def test_the_accuracy_equals_that_without_compression(path, kind, uncompressed, mnist, tmp_path, settings):
    assert uncompressed > 0.97
    found = _accuracy(Training(tmp_path / "Trainer", mnist), settings, path, kind)
    assert found == pytest.approx(uncompressed, abs=0.005)


def test_the_sum_of_the_largest_entries_does_not_overflow_and_nan_stays_nan():
    class Replicas:
        num_replicas_in_sync = 3

    gradient = tf.constant([1e30, -1e30, 1e-7, 0.3, float("nan")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.distribute, "get_strategy", Replicas)
        sent = compress(gradient, "fp16")
    assert sent.dtype == tf.float16
    found = restore(sent + sent + sent, "fp16", tf.float32).numpy()
    np.testing.assert_allclose(found, [128, -128, 3e-7, 0.9, np.nan], rtol=2e-3)
    # One replica sends nothing.
    assert compress(gradient, "fp16") is gradient
