"""`trainer.gradient_accumulation`: what it takes, and what it says of what it does not."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit

TWO = "  distribution: {train: {strategy: multi_worker_mirrored, workers: 2}}\n"
PS = "  distribution: {train: {strategy: parameter_server, workers: 2, ps: 1}}\n"


@pytest.mark.parametrize("more", ["", TWO, PS, "  path: keras\n", "  path: keras_custom_loop\n"])
def test_it_is_taken_on_every_path_and_decides_the_model(write, good, more):
    loaded = load(write(f"{good}{more}  gradient_accumulation: 4\n"))
    deciding, operational = loaded.declaration.trainer.split()
    assert deciding["gradient_accumulation"] == 4
    assert "gradient_accumulation" not in operational
    assert load(write(good + more)).declaration.trainer.gradient_accumulation == 1


def test_no_part_may_be_without_examples(write, refuse, good):
    of_32 = f"{good}  global_batch_size: 32\n"
    load(write(f"{of_32}{PS}  gradient_accumulation: 32\n"))
    load(write(f"{of_32}{TWO}  gradient_accumulation: 16\n"))
    message = refuse(f"{of_32}{TWO}  gradient_accumulation: 17\n")
    for part in ("trainer.gradient_accumulation: 17", "each replica has 16 of the 32 examples", "at most 16"):
        assert part in message
    assert "out of range" in refuse(f"{of_32}  gradient_accumulation: 0\n")


@pytest.mark.parametrize("function", ["trainer_fn(fn_args, schema)", "run_fn(fn_args)"])
def test_a_module_file_is_refused(write, refuse, good, function):
    write(f"def {function}: pass\n", "mine.py")
    text = good.replace("model: mnist_cnn", "module_file: mine.py")
    message = refuse(f"{text}  gradient_accumulation: 2\n")
    assert "a module file's trainer_fn or run_fn computes its gradients itself" in message
    load(write(f"{text}  gradient_accumulation: 1\n"))


def test_a_whole_model_fn_is_refused_and_a_network_taken(write, refuse, good):
    write("def net(num_classes): pass\ndef whole(features, labels, mode, params): pass\n", "mynet.py")
    parts = "  gradient_accumulation: 2\n"
    message = refuse(good.replace("mnist_cnn", "mynet:whole") + parts)
    assert "mynet:whole is a whole Estimator model_fn" in message
    assert "accumulate in your own step" in message
    load(write(good.replace("mnist_cnn", "mynet:net") + parts))
