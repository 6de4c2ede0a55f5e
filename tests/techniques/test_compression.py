"""`gradient_compression`: what goes over the wire, and what comes of it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.components.trainer.conftest import Training
from tests.techniques import wire

WORKERS = {"strategy": "multi_worker_mirrored", "workers": 2}


def _declared(kind: str) -> dict:
    return {"distribution": {"train": {**WORKERS, "gradient_compression": kind}}}


@pytest.mark.cluster
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("kind", "size"), [("none", 4), ("fp16", 2), ("bf16", 2)])
def test_an_entry_has_so_many_bytes_on_the_wire_and_the_replicas_stay_equal(kind, size, two_workers):
    first, second = two_workers[kind]
    # In a ring of two, each sends half of the entries, and then half of the sums.
    sent = min(first["bytes"], second["bytes"]) / wire.STEPS / first["parameters"] / 2
    assert 0.9 * size <= sent < 1.3 * size
    assert first["weights"] == second["weights"]
    assert first["loss"] == second["loss"]
    plain = two_workers["none"][0]
    assert first["loss"] == pytest.approx(plain["loss"], abs=0.01)
    assert (first["weights"] == plain["weights"]) == (kind == "none")


@pytest.fixture(scope="module")
def uncompressed(tmp_path_factory, digits, settings):
    """Accuracy on the digits without compression."""
    training = Training(tmp_path_factory.mktemp("Trainer"), digits)
    return _accuracy(training, settings, "keras", "none")


def _accuracy(training, settings, path, kind):
    trainer = {**_declared(kind), "path": path, "train_steps": 200, "save_checkpoints_steps": 200}
    _, run = training.run(settings(trainer), steps=200)
    assert run.get_float_custom_property("last_step") == 200
    return run.get_float_custom_property("eval_accuracy")


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("path", "kind"), [("estimator", "fp16"), ("keras", "bf16"), ("keras_custom_loop", "fp16")])
def test_the_accuracy_is_that_without_compression(path, kind, uncompressed, training, settings):
    assert uncompressed > 0.9
    assert _accuracy(training, settings, path, kind) == pytest.approx(uncompressed, abs=0.005)


@pytest.mark.unit
def test_the_sum_of_the_largest_entries_does_not_overflow_and_what_is_no_number_stays_so():
    import tensorflow as tf

    from tfx_estimator.model_fn.compression import compress, restore

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
