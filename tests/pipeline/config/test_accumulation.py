"""`gradient_accumulation` and `parallel_parts`: what they take, and what they say of what they do not."""

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


PARALLEL = "  parallel_parts: {}\n"


@pytest.mark.parametrize("more", ["", TWO, PS, "  path: keras\n", "  path: keras_custom_loop\n"])
def test_parallel_parts_are_taken_on_every_path_and_decide_no_model(write, good, more):
    loaded = load(write(good + more + PARALLEL.format("auto")))
    deciding, operational = loaded.declaration.trainer.split()
    assert operational["parallel_parts"] == "auto"
    assert "parallel_parts" not in deciding
    assert load(write(good + more + PARALLEL.format(4))).declaration.trainer.parallel_parts == 4
    assert load(write(good + more)).declaration.trainer.parallel_parts == 1


def test_no_parallel_part_may_be_without_examples(write, refuse, good):
    of_32 = f"{good}  global_batch_size: 32\n"
    load(write(f"{of_32}{TWO}{PARALLEL.format(16)}"))
    message = refuse(f"{of_32}{TWO}{PARALLEL.format(17)}")
    for part in ("trainer.parallel_parts: 17", "each replica has 16 of the 32 examples", "at most 16"):
        assert part in message
    turns = f"{of_32}  gradient_accumulation: 5\n"
    load(write(turns + PARALLEL.format(6)))
    message = refuse(turns + PARALLEL.format(7))
    assert "has 32 of the 32 examples of a step, and trainer.gradient_accumulation makes 5 parts of them" in message
    assert "at most 6" in message


def test_a_wrong_number_of_parallel_parts_is_out_of_range_and_a_wrong_word_has_a_near_one(refuse, good):
    for number in (0, -1, 1025):
        message = refuse(good + PARALLEL.format(number))
        assert "the value is out of range" in message
        assert "auto, or a whole number, at least 1, at most 1,024" in message
    assert "did you mean `auto`?" in refuse(good + PARALLEL.format("atuo"))
    assert "it is no whole number" in refuse(good + PARALLEL.format(2.5))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("  xla: true\n", "there is trainer.xla as well: XLA makes one program of a step"),
        (
            "  model_parallel: {devices: [cpu:0, cpu:1], layers: {dense1: 1}}\n",
            "there is trainer.model_parallel as well",
        ),
        ("  pipeline_parallel: {stages: 2, microbatches: 2}\n", "there is trainer.pipeline_parallel as well"),
        (
            "  distribution: {train: {strategy: tpu, tpu: local}}\n",
            "a TPU's host computes no step",
        ),
    ],
)
def test_what_computes_a_batch_whole_is_refused_beside_parallel_parts_but_not_beside_auto(
    write, refuse, good, more, reason
):
    message = refuse(good + more + PARALLEL.format(2))
    assert reason in message
    load(write(good + more + PARALLEL.format("auto")))


def test_networks_that_normalise_by_a_batch_and_steps_that_are_not_ours_take_auto_alone(write, refuse, good):
    resnet = good.replace("mnist_cnn", "cifar_resnet")
    assert "cifar_resnet normalises by the statistics of a batch" in refuse(resnet + PARALLEL.format(2))
    load(write(resnet + PARALLEL.format("auto")))
    write("def whole(features, labels, mode, params): pass\n", "mynet.py")
    whole = good.replace("mnist_cnn", "mynet:whole")
    message = refuse(whole + PARALLEL.format(2))
    assert "trainer.parallel_parts: 2" in message
    assert "mynet:whole is a whole Estimator model_fn: it computes its gradients itself" in message
    load(write(whole + PARALLEL.format("auto")))
    both = refuse(f"{whole}  gradient_accumulation: 2\n{PARALLEL.format(2)}")
    assert both.count("computes its gradients itself") == 2
