"""Strategies and devices: short and long forms, options, and how replicas share batches and files."""

from __future__ import annotations

import ast
import json
from typing import get_args

import pytest

from tests.root import ROOT
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.distribution import Devices, Distribution, Strategy, TrainStrategy
from tfx_estimator.pipeline.config.strategies import TRAITS, AnyStrategy
from tfx_estimator.pipeline.config.yaml_text import render
from tfx_estimator.pipeline.experiments.bench.strategies import parse_contenders

PRODUCT = ("pipeline", "components", "model_fn", "data")
TRAIN, EVAL = "trainer.distribution.train", "trainer.distribution.eval"
TABLES = {"pipeline/config/strategies.py", "model_fn/parallel/strategies.py"}


def test_every_strategy_that_can_be_declared_has_its_line_in_the_table():
    assert set(TRAITS) == set(get_args(AnyStrategy))
    options = set(TrainStrategy.__fields__) | set(Strategy.__fields__)
    assert {option for traits in TRAITS.values() for option in traits.options} <= options


def test_no_other_file_of_the_product_has_a_strategys_name():
    files = [file for folder in PRODUCT for file in (ROOT / folder).glob("**/*.py")]
    assert len(files) > 100
    assert {str(file.relative_to(ROOT)) for file in files if _names_strategy(file.read_text())} == TABLES


def _names_strategy(source: str) -> bool:
    """Returns whether a string in the source is a strategy's name; a longer text may contain one as an example."""
    # `tpu` is also an option's name.
    names = TRAITS.keys() - {"tpu"}
    return any(isinstance(node, ast.Constant) and node.value in names for node in ast.walk(ast.parse(source)))


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("mirrored:2", {"strategy": "mirrored", "devices": {"cpu": 2}}),
        ("central_storage:4", {"strategy": "central_storage", "devices": {"cpu": 4}}),
        ("multi_worker_mirrored:2", {"strategy": "multi_worker_mirrored", "workers": 2}),
        ("parameter_server:4", {"strategy": "parameter_server", "workers": 4}),
        ("one_device", {"strategy": "one_device"}),
        ("mirrored", {"strategy": "mirrored"}),
    ],
)
def test_a_strategy_is_written_as_bench_writes_it(write, good, short, long):
    meant = Distribution.parse_obj({"train": long})
    assert Distribution.parse_obj({"train": short}) == meant
    of_file = load(write(f"{good}  distribution: {{train: {short}}}\n"))
    for loaded, place in ((of_file, "mine.yaml:8"), (load("digits", [f"{TRAIN}={short}"]), "--set")):
        assert loaded.declaration.trainer.distribution == meant
        assert loaded.origins[f"{TRAIN}.strategy"] == place
    assert parse_contenders(short)


def test_a_number_of_devices_is_that_of_logical_cpus():
    loaded = load("digits", [f"{TRAIN}={{strategy: mirrored, devices: 2}}", "trainer.distribution.eval=mirrored:2"])
    distribution = loaded.declaration.trainer.distribution
    assert distribution.train.devices.cpu == distribution.eval.devices.cpu == 2
    assert loaded.origins[f"{TRAIN}.devices.cpu"] == "--set"
    # A part of a short form can be overridden.
    loaded = load("digits", [f"{TRAIN}=multi_worker_mirrored:2", f"{TRAIN}.workers=4"])
    assert loaded.declaration.trainer.distribution.train.worker_count == 4


# (declared devices, reason of the refusal)
NO_CHOICE = [
    *(
        (chosen, "neither a number from 1 to 64 nor a list")
        for chosen in ("[]", "[1, 1]", "[-1]", "[0, 64]", "0", "-2", "65")
    ),
    ("[0, true]", "item 2: true/false is no number"),
    ("[1.0]", "item 1: it is no whole number"),
    ("[[1]]", "item 1: a list is no number"),
    ("true", "true/false is no number"),
    ("2.0", "it is no whole number"),
    ("'2'", "text is no number"),
]


@pytest.mark.parametrize(("chosen", "what"), NO_CHOICE)
def test_a_wrong_choice_of_devices_is_refused(problems, good, chosen, what):
    (problem,) = problems(f"{good}  distribution: {{train: {{strategy: mirrored, devices: {{gpu: {chosen}}}}}}}\n")
    assert problem.startswith(f"mine.yaml:8  {TRAIN}.devices.gpu: {chosen}")
    assert what in problem
    assert "expected: a whole number, or a list, each a whole number, or null (number of" in problem


@pytest.mark.parametrize(
    ("declared", "indices", "count", "text"),
    [
        ({}, (), 1, ""),
        ({"cpu": 1}, (0,), 1, "cpu: 1"),
        ({"gpu": 3}, (0, 1, 2), 3, "gpu: 3"),
        ({"cpu": [0]}, (0,), 1, "cpu: [0]"),
        ({"gpu": [3, 1]}, (3, 1), 2, "gpu: [3, 1]"),
    ],
)
def test_callers_need_not_know_both_forms(declared, indices, count, text):
    devices = Devices.parse_obj(declared)
    assert (devices.indices, devices.count, devices.text) == (indices, count, text)


def test_a_list_of_devices_comes_back_as_it_was(write, good):
    write(good)
    overrides = [f"{EVAL}.strategy=mirrored", f"{EVAL}.devices.cpu=[0, 2]"]
    declaration = load("mine.yaml", overrides).declaration
    assert "cpu: [0, 2]" in render(declaration.dict())
    assert load(write(render(declaration.dict()))).declaration == declaration
    distribution = declaration.trainer.distribution
    assert Distribution.parse_obj(json.loads(json.dumps(distribution.dict()))) == distribution
    assert len({distribution.eval, Strategy(), Strategy()}) == 2


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
    for text in (f"among {replicas} (trainer.distribution.{which})", f"a multiple of {multiple}\n", f"to {near}, or"):
        assert text in problem


def test_fewer_files_than_workers(problems, write, good):
    text = good.replace("dataset: mnist", "dataset: mnist\n  shards: 3")
    cluster = "  distribution: {train: {strategy: parameter_server, workers: 4}, sharding: "
    (problem,) = problems(f"{text}{cluster}file}}\n")
    assert problem.startswith("mine.yaml:4  data.shards: 3\n3 files cannot be shared among 4 workers")
    assert load(write(f"{text}{cluster}element}}\n")).declaration.data.shards == 3


@pytest.mark.parametrize(("workers", "sharding", "files"), [(12, "file", 12), (4, "file", 8), (12, "element", 8)])
def test_as_many_files_as_workers_read_unless_declared(write, good, workers, sharding, files):
    train = f"train: {{strategy: parameter_server, workers: {workers}}}"
    assert load(write(f"{good}  distribution: {{{train}, sharding: {sharding}}}\n")).declaration.shards == files


def test_a_module_file_has_its_own_batches_files_and_checkpoints(write, problems, tmp_path, good):
    (tmp_path / "taxi.py").write_text("def trainer_fn(fn_args, schema): ...\n")
    text = good.replace("model: mnist_cnn", "module_file: taxi.py").replace("500", "50")
    text += "  distribution: {train: {strategy: multi_worker_mirrored, workers: 9}, evaluator: true"
    assert load(write(f"{text}}}\n")).declaration.trainer.distribution.train.worker_count == 9
    (problem,) = problems(f"{text}, sharding: file}}\n")
    assert problem.startswith("mine.yaml:8  trainer.distribution.sharding: file\nit is for the built-in input_fn")
