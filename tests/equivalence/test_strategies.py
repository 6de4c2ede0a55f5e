"""A strategy changes speed, not results: losses of all steps, final weights and metrics."""

from __future__ import annotations

import numpy as np
import pytest

from tests.equivalence.conftest import EVAL, MULTI_WORKER, ONE_DEVICE, largest_difference, read_weights

pytestmark = [pytest.mark.equivalence, pytest.mark.timeout(300)]

TWO_CPUS = {"devices": {"cpu": 2}}
MIRRORED = {"strategy": "mirrored", **TWO_CPUS}
CENTRAL = {"strategy": "central_storage", **TWO_CPUS}
# Strategies of training and of evaluation. An evaluation reads everything whichever way it is shared out.
STRATEGIES = {
    "one_device": (ONE_DEVICE, ONE_DEVICE),
    "mirrored, reduction_to_one_device": (MIRRORED, MIRRORED),
    "mirrored, hierarchical_copy": ({**MIRRORED, "cross_device_ops": "hierarchical_copy"}, CENTRAL),
    "central_storage": (CENTRAL, CENTRAL),
    "multi_worker_mirrored": (MULTI_WORKER, MIRRORED),
}
NETWORKS = {
    "mnist_cnn": {"data": "mnist", "global_batch_size": 32},
    "cifar_cnn": {"data": "cifar10", "global_batch_size": 16},
}
STEPS = 60
# Absolute; sums in another order differ by about 1e-7.
LOSS, WEIGHTS, MEAN = 1e-5, 1e-5, 1e-6
# Small, and without momentum: where a rounding makes a ReLU or a maximum go the other way, which happens to any two
# trainings in float32, the weights differ by the learning rate times a gradient. test_layers trains faster, in float64.
OPTIMIZER = {"name": "sgd", "learning_rate": 0.0003, "schedule": "constant"}


def trainer(network: str, strategy: str) -> dict:
    train, evaluate = STRATEGIES[strategy]
    return {
        "model": f"model_fn.networks:{network}",
        "train_steps": STEPS,
        "intra_op_threads": 1,
        "optimizer": OPTIMIZER,
        "distribution": {"train": train, "eval": evaluate, "max_restarts": 0},
        **NETWORKS[network],
    }


@pytest.fixture(scope="module")
def trained(trainings):
    """What came of a network under a strategy; all of a network's at once."""

    def find(network: str, strategy: str):
        results = trainings.run(*(trainer(network, each) for each in STRATEGIES))
        return results[list(STRATEGIES).index(strategy)]

    return find


@pytest.mark.parametrize("strategy", list(STRATEGIES)[1:])
@pytest.mark.parametrize("network", NETWORKS)
def test_losses_and_weights_are_those_of_one_device(trained, network, strategy):
    one, other = trained(network, "one_device"), trained(network, strategy)
    assert len(one.steps) == len(other.steps) == STEPS
    losses = [[run.loss(step) for step in run.steps] for run in (one, other)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=0, atol=LOSS)
    assert one.weights["global_step"] == other.weights["global_step"] == STEPS
    assert largest_difference(one.weights, other.weights) <= WEIGHTS
    # Weights that stood still would be equal as well.
    assert (
        largest_difference(read_weights(f"{one.run.uri}/model.ckpt-0"), one.weights | {"global_step": 0})
        > 100 * WEIGHTS
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("network", NETWORKS)
def test_evaluation_is_the_mean_over_every_example_once(trained, images, network, strategy):
    import tensorflow as tf

    run = trained(network, strategy)
    pixels, labels = images(NETWORKS[network]["data"]).eval
    assert len(labels) == EVAL
    serving = tf.saved_model.load(str(run.model / "Format-Serving"))
    probabilities = serving.signatures["images"](images=tf.constant(pixels))["probabilities"].numpy()
    true_class = probabilities[np.arange(EVAL), labels].astype(np.float64)
    assert run.metric("eval_average_loss") == pytest.approx(-np.log(true_class).mean(), abs=MEAN)
    hits = int((probabilities.argmax(axis=1) == labels).sum())
    assert run.metric("eval_accuracy") == pytest.approx(hits / EVAL, abs=MEAN)
