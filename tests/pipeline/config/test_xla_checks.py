"""`trainer.xla`: what it takes, and what it is not for is refused, with the reason."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit

SERVERS = "  distribution: {train: parameter_server}\n"


@pytest.mark.parametrize(("written", "value"), [("true", True), ("false", False), ("auto", "auto")])
@pytest.mark.parametrize("path", ["estimator", "keras", "keras_custom_loop"])
def test_a_network_is_given_it_on_every_path(write, good, written, value, path):
    trainer = load(write(f"{good}  path: {path}\n  xla: {written}\n")).declaration.trainer
    assert trainer.xla is value or trainer.xla == value
    # It is in the Trainer's key.
    deciding, operational = trainer.split()
    assert deciding["xla"] == value
    assert "xla" not in operational


@pytest.mark.parametrize("written", ["'true'", "1", "fast", "on_cpu"])
def test_nothing_else_is_taken(good, refuse, written):
    said = refuse(f"{good}  xla: {written}\n")
    assert "trainer.xla" in said
    assert "to do:    write true, false or auto\n" in said


def test_what_a_trial_decides(write, good):
    assert load(write(good)).declaration.trainer.undecided == ()
    both = load(write(f"{good}  xla: auto\n  precision: auto\n")).declaration.trainer
    assert both.undecided == ("precision", "xla")


@pytest.mark.parametrize("value", ["true", "auto"])
def test_a_step_of_the_users_own_is_refused(write, good, refuse, value):
    write("def model_fn(features, labels, mode, params):\n    pass\n", "own.py")
    whole = good.replace("mnist_cnn", "own:model_fn")
    assert "own:model_fn is a whole Estimator model_fn" in refuse(f"{whole}  xla: {value}\n")
    load(write(f"{whole}  xla: false\n"))
    write("def run_fn(fn_args):\n    pass\n", "own.py")
    module = good.replace("model: mnist_cnn", "module_file: own.py")
    assert "has a training step of its own" in refuse(f"{module}  xla: {value}\n")


def test_weights_in_other_processes_are_refused(write, good, refuse):
    assert "the weights are in other processes" in refuse(f"{good}{SERVERS}  xla: true\n")
    load(write(f"{good}{SERVERS}  precision: auto\n"))
    central = "  distribution: {train: {strategy: central_storage, devices: {cpu: 2}}}\n"
    assert "the weights are on one device" in refuse(f"{good}{central}  xla: auto\n")


def test_what_a_clock_decides_is_not_deterministic(good, refuse):
    said = refuse(f"{good}  deterministic: true\n  xla: auto\n  precision: auto\n")
    assert "trainer.deterministic" in said
    assert "trainer.precision and trainer.xla declared" in said


def test_a_built_in_network_that_pools_is_not_deterministic_with_it(write, good, refuse):
    resnet = good.replace("mnist_cnn", "cifar_resnet")
    assert load(write(f"{resnet}  deterministic: true\n  xla: true\n")).declaration.trainer.xla is True
    said = refuse(f"{good}  deterministic: true\n  xla: true\n")
    assert "XLA has no deterministic gradient of max-pooling, and mnist_cnn pools so" in said


@pytest.mark.parametrize("train", ["mirrored:2", "multi_worker_mirrored"])
def test_a_built_in_network_that_normalises_over_replicas_is_refused(write, good, refuse, train):
    resnet = good.replace("mnist_cnn", "cifar_resnet9") + "  params: {synchronized: true}\n"
    several = f"  distribution: {{train: '{train}'}}\n"
    assert "normalises by the batch of all replicas" in refuse(f"{resnet}{several}  xla: true\n")
    # One replica; a trial leaves it out; each replica by itself.
    load(write(f"{resnet}  xla: true\n"))
    load(write(f"{resnet}{several}  xla: auto\n"))
    load(write(f"{resnet.replace('true', 'false')}{several}  xla: true\n"))


def test_a_tpu_is_refused(good, refuse):
    tpu = "  distribution: {train: {strategy: tpu, tpu: local}}\n"
    assert "compiled with XLA anyway" in refuse(f"{good}{tpu}  xla: true\n")
    assert "on the CPU or GPU of this machine" in refuse(f"{good}{tpu}  precision: auto\n")


def test_layers_on_several_devices_are_refused(good, refuse):
    stages = "  pipeline_parallel: {stages: 2, microbatches: 2}\n"
    assert "XLA compiles for one device, and trainer.pipeline_parallel puts" in refuse(f"{good}{stages}  xla: true\n")
