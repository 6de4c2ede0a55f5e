"""`trainer.xla`: what it takes, and what it is not for is refused, with the reason."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit

SERVERS = "  distribution: {train: parameter_server}\n"


@pytest.mark.parametrize(("written", "value"), [("true", True), ("false", False)])
@pytest.mark.parametrize("path", ["estimator", "keras", "keras_custom_loop"])
def test_a_network_is_given_it_on_every_path(write, good, written, value, path):
    trainer = load(write(f"{good}  path: {path}\n  xla: {written}\n")).declaration.trainer
    assert trainer.xla is value
    # It is in the Trainer's key.
    deciding, operational = trainer.split()
    assert deciding["xla"] is value
    assert "xla" not in operational


@pytest.mark.parametrize("written", ["'true'", "1", "fast", "on_cpu"])
def test_nothing_else_is_taken(good, refuse, written):
    said = refuse(f"{good}  xla: {written}\n")
    assert "trainer.xla" in said
    assert "to do:    write true or false\n" in said


@pytest.mark.parametrize("varied", ["xla=false,true", "precision=float32,mixed_bfloat16"])
def test_who_wants_the_faster_is_told_how_to_measure_it(good, refuse, varied):
    said = refuse(f"{good}  {varied.partition('=')[0]}: auto\n")
    todo = f"measure it with `tfx-estimator bench strategies SOURCE --vary {varied}`, and write down what pays"
    assert f"to do:    {todo}\n" in said


def test_a_step_of_the_users_own_is_refused(write, good, refuse):
    write("def model_fn(features, labels, mode, params):\n    pass\n", "own.py")
    whole = good.replace("mnist_cnn", "own:model_fn")
    assert "own:model_fn is a whole Estimator model_fn" in refuse(f"{whole}  xla: true\n")
    load(write(f"{whole}  xla: false\n"))
    write("def run_fn(fn_args):\n    pass\n", "own.py")
    module = good.replace("model: mnist_cnn", "module_file: own.py")
    assert "has a training step of its own" in refuse(f"{module}  xla: true\n")


def test_weights_in_other_processes_are_refused(write, good, refuse):
    assert "the weights are in other processes" in refuse(f"{good}{SERVERS}  xla: true\n")
    central = "  distribution: {train: {strategy: central_storage, devices: {cpu: 2}}}\n"
    assert "the weights are on one device" in refuse(f"{good}{central}  xla: true\n")


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
    # One replica; each replica by itself.
    load(write(f"{resnet}  xla: true\n"))
    load(write(f"{resnet.replace('true', 'false')}{several}  xla: true\n"))


def test_a_tpu_is_refused(good, refuse):
    tpu = "  distribution: {train: {strategy: tpu, tpu: local}}\n"
    assert "compiled with XLA anyway" in refuse(f"{good}{tpu}  xla: true\n")


def test_layers_on_several_devices_are_refused(good, refuse):
    stages = "  pipeline_parallel: {stages: 2, microbatches: 2}\n"
    assert "XLA compiles for one device, and trainer.pipeline_parallel puts" in refuse(f"{good}{stages}  xla: true\n")
