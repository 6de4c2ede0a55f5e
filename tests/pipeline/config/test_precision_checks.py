"""`trainer.precision`: what it is not for is refused, with the reason."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit

MODEL_FN = "def model_fn(features, labels, mode, params):\n    pass\n"


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("path", ["estimator", "keras", "keras_custom_loop"])
def test_a_network_is_given_it_on_every_path(write, good, precision, path):
    loaded = load(write(good + f"  precision: {precision}\n  path: {path}\n"))
    assert loaded.declaration.trainer.precision == precision
    deciding, _ = loaded.declaration.trainer.split()
    assert deciding["precision"] == precision


def test_a_whole_model_fn_is_refused(write, good, refuse):
    write(MODEL_FN, "own.py")
    text = good.replace("mnist_cnn", "own:model_fn")
    assert "own:model_fn is a whole Estimator model_fn" in refuse(text + "  precision: mixed_bfloat16\n")
    load(write(text + "  precision: float32\n"))


@pytest.mark.parametrize("function", ["def run_fn(fn_args):", "def trainer_fn(fn_args, schema):"])
def test_a_module_file_is_refused(write, good, refuse, function):
    write(f"{function}\n    pass\n", "own.py")
    text = good.replace("model: mnist_cnn", "module_file: own.py")
    assert "makes its network by itself" in refuse(text + "  precision: mixed_float16\n")


def test_float16_is_refused_where_workers_train_by_themselves(good, refuse, write):
    synced = "  path: keras\n  sync_every: 2\n  distribution: {train: {strategy: multi_worker_mirrored, workers: 2}}\n"
    message = refuse(good + synced + "  precision: mixed_float16\n")
    assert "change the scale, and skip steps, by itself" in message
    assert "has 1 problem" in message
    load(write(good + synced + "  precision: mixed_bfloat16\n"))


def test_float16_is_refused_where_workers_share_no_step(good, refuse, write):
    servers = "  distribution: {train: parameter_server}\n"
    assert "change the scale" in refuse(good + servers + "  precision: mixed_float16\n")
    load(write(good + servers + "  precision: mixed_bfloat16\n"))


def test_sixteen_bits_are_refused_where_variables_are_cut(good, refuse, write):
    # Keras has no AutoCastVariable of a ShardedVariable.
    cut = "{strategy: parameter_server, variable_partitioner: {fixed_shards: 2}}"
    servers = f"  path: keras\n  distribution: {{train: {cut}}}\n"
    assert "cannot cast one that a partitioner has cut" in refuse(good + servers + "  precision: mixed_bfloat16\n")
    load(write(good + servers))
