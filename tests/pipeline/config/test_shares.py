"""What replicas and workers share: batches, files, checkpoints."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit


# The strategy, the replicas that a message names, their number, and the multiples next to 128 (or to 500).
BATCHES = [
    ("train: {strategy: mirrored, devices: {cpu: 3}}", "3 devices", 3, "126 or 129"),
    ("train: {strategy: central_storage, devices: {gpu: 5}}", "5 devices", 5, "125 or 130"),
    ("train: {strategy: multi_worker_mirrored, workers: 3}", "3 workers", 3, "126 or 129"),
    ("train: {strategy: multi_worker_mirrored, devices: {gpu: 3}}", "2 workers x 3 devices", 6, "126 or 132"),
    ("train: {strategy: parameter_server, workers: 5, devices: {gpu: 3}}", "3 devices", 3, "126 or 129"),
    ("train: {strategy: multi_worker_mirrored, workers: 40, devices: {gpu: 4}}", "40 workers x 4 devices", 160, "160"),
    ("train: {strategy: mirrored, devices: {gpu: [0, 2, 5]}}", "3 devices", 3, "126 or 129"),
    ("train: {strategy: multi_worker_mirrored, workers: 1, devices: {gpu: [4, 5, 6]}}", "3 devices", 3, "126 or 129"),
    ("eval: {strategy: mirrored, devices: {cpu: 3}}", "3 devices", 3, "498 or 501"),
]


@pytest.mark.parametrize(("strategy", "replicas", "multiple", "near"), BATCHES)
def test_a_batch_that_does_not_divide(problems, good, strategy, replicas, multiple, near):
    which = strategy.partition(":")[0]
    key, size = ("global_batch_size", 128) if which == "train" else ("eval_batch_size", 500)
    (problem,) = problems(f"{good}  {key}: {size}\n  distribution: {{{strategy}}}\n")
    assert problem.startswith(f"mine.yaml:8  trainer.{key}: {size}\n")
    for said in (f"among {replicas} (trainer.distribution.{which})", f"a multiple of {multiple}\n", f"to {near}, or"):
        assert said in problem


def test_fewer_files_than_workers(problems, write, good):
    text = good.replace("dataset: mnist", "dataset: mnist\n  shards: 3")
    cluster = "  distribution: {train: {strategy: parameter_server, workers: 4}, sharding: "
    (problem,) = problems(f"{text}{cluster}file}}\n")
    assert problem.startswith("mine.yaml:4  data.shards: 3\n3 files cannot be shared among 4 workers")
    write(f"{text}{cluster}element}}\n")
    assert load("mine.yaml").declaration.data.shards == 3


@pytest.mark.parametrize(("workers", "sharding", "files"), [(12, "file", 12), (4, "file", 8), (12, "element", 8)])
def test_as_many_files_as_workers_read_unless_declared(write, good, workers, sharding, files):
    train = f"train: {{strategy: parameter_server, workers: {workers}}}"
    write(f"{good}  distribution: {{{train}, sharding: {sharding}}}\n")
    assert load("mine.yaml").declaration.shards == files


def test_a_module_file_has_its_own_batches_files_and_checkpoints(write, problems, tmp_path, good):
    (tmp_path / "taxi.py").write_text("def trainer_fn(fn_args, schema): ...\n")
    text = good.replace("model: mnist_cnn", "module_file: taxi.py").replace("500", "50")
    text += "  distribution: {train: {strategy: multi_worker_mirrored, workers: 9}, evaluator: true"
    write(f"{text}}}\n")
    assert load("mine.yaml").declaration.trainer.distribution.train.worker_count == 9
    (problem,) = problems(f"{text}, sharding: file}}\n")
    assert problem.startswith("mine.yaml:8  trainer.distribution.sharding: file\nit is for the built-in input_fn")
