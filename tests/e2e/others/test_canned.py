"""A user's trainer_fn with a canned Estimator: equal under every strategy and TFX's own Trainer."""

from __future__ import annotations

import numpy as np
import pytest

from tfx_estimator.pipeline.base.stack import stacks

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]

# Tolerances of losses and probabilities; they differ by 1e-7.
TOLERANCE = 1e-5
TWO_CPUS = {"cpu": 2}
WORKERS = {"strategy": "multi_worker_mirrored", "workers": 2}
CANNED = "cancer_canned"
HERE = stacks.current()


@pytest.mark.skipif(not HERE.has_trainer_fn_executor, reason=f"TFX {HERE.tfx} has no executor of a trainer_fn")
def test_tfx_trains_the_same_model(others, served, eval_examples):
    ours, theirs = (served(others.models[name] / "Format-Serving") for name in (CANNED, "tfx"))
    np.testing.assert_allclose(ours, theirs, atol=TOLERANCE)
    assert ((theirs > 0.5) == eval_examples[1]).mean() >= 0.9
    # Both wrote the EvalSavedModel for TFMA.
    for name in (CANNED, "tfx"):
        assert (others.models[name] / "Format-TFMA" / "saved_model.pb").exists()


@pytest.mark.parametrize(
    ("distribution", "tasks"),
    [
        # The loss is checked before the training.
        ({"train": WORKERS, "evaluator": True}, ["chief-0", "evaluator-0", "replica_check-0", "worker-0"]),
        ({"train": WORKERS}, ["chief-0", "exporter-0", "replica_check-0", "worker-0"]),
        ({"train": {"strategy": "mirrored", "devices": TWO_CPUS}}, ["chief-0", "replica_check-0"]),
        ({"train": {"strategy": "central_storage", "devices": TWO_CPUS}}, ["chief-0", "replica_check-0"]),
    ],
    ids=lambda value: value["train"]["strategy"] if isinstance(value, dict) else "",
)
def test_synchronous_replicas_train_the_same_model(others, train, served, eval_examples, distribution, tasks):
    trained = train(CANNED, distribution=distribution)
    alone, labels = others.properties(CANNED), eval_examples[1]
    probabilities = served(trained.model / "Format-Serving")
    # A global batch of twice the size, or other batches, would make a difference.
    np.testing.assert_allclose(probabilities, served(others.models[CANNED] / "Format-Serving"), atol=TOLERANCE)
    _check(trained, probabilities, labels)
    assert trained.properties["eval_average_loss"] == pytest.approx(alone["eval_average_loss"], abs=TOLERANCE)
    assert trained.properties["last_step"] == 200
    assert (trained.model / "Format-TFMA" / "saved_model.pb").exists() is HERE.has_eval_saved_model
    assert trained.tasks == tasks


def test_parameter_servers_train_a_model_as_good(train, served, eval_examples):
    train_section = {"strategy": "parameter_server", "workers": 2, "ps": 1}
    trained = train(CANNED, distribution={"train": train_section, "evaluator": True})
    _check(trained, served(trained.model / "Format-Serving"), eval_examples[1])
    assert trained.properties["last_step"] >= 200
    assert trained.tasks == ["chief-0", "evaluator-0", "ps-0", "worker-0"]


def _check(trained, probabilities, labels):
    assert len(labels) > 100
    assert trained.properties["restarts"] == 0
    assert trained.properties["eval_accuracy"] >= 0.9
    # Each example was evaluated once.
    assert trained.properties["eval_label/mean"] == pytest.approx(labels.mean(), abs=1e-6)
    right = (probabilities > 0.5) == labels
    assert trained.properties["eval_accuracy"] == pytest.approx(right.mean(), abs=1e-6)
    losses = -np.log(np.where(labels, probabilities, 1 - probabilities))
    assert trained.properties["eval_average_loss"] == pytest.approx(losses.mean(), abs=1e-5)
