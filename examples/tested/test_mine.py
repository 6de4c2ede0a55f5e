import counting
import models
import numpy as np
import pytest
import tensorflow as tf
import trips

from tfx_estimator import testing

X = np.random.default_rng(1).standard_normal((32, 5), np.float32)
ROWS = [{"miles": float(n), "company": "abc"[n % 3], "tipped": int(n > 5)} for n in range(12)]


@pytest.fixture(scope="module")
def graph():
    return testing.artifact("TransformGraph", (trips.preprocessing_fn, ROWS))


def test_it_learns_the_classes():
    testing.overfits(models.classify)


def test_a_step_updates_averages():
    assert testing.call_model_fn(models.classify).step == 1


def test_it_counts_what_is_right():
    assert 0 <= testing.call_model_fn(models.classify, "eval").metrics["accuracy"] <= 1


def test_it_predicts_probabilities():
    predictions = testing.call_model_fn(models.classify, "infer", examples=4).predictions
    assert predictions["probabilities"].sum(1) == pytest.approx(np.ones(4))


def test_it_learns_numbers():
    testing.overfits(models.regress, features={"x": X}, labels=X.sum(1))


def test_the_network_learns():
    testing.overfits(models.network, trainer=models.TRAINER)


def test_what_is_served_is_what_was_trained(graph):
    assert set(np.ravel(testing.preprocess(graph, ROWS, label="tipped")["company"])) == {0, 1, 2}


def test_the_trainer_fn_trains_and_its_model_serves(graph):
    made = trips.trainer_fn(testing.fn_args(testing.examples(ROWS), transform_graph=graph), None)
    tf.estimator.train_and_evaluate(made["estimator"], made["train_spec"], made["eval_spec"])
    served = testing.export_and_serve(made["estimator"], ROWS, made["eval_input_receiver_fn"], signature="predict")
    assert served["probabilities"].shape == (12, 2)


def test_two_replicas_train_as_one_device():
    testing.same_under(["mirrored:2"], models.regress, features={"x": X}, labels=X.sum(1))


def test_the_component_measures_a_split():
    assert testing.run_component(counting.Counter, examples=testing.examples(ROWS), split="eval")["found"].value != "0"
