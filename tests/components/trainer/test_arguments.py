"""Options of a declaration's section `trainer` as arguments of a Trainer or Tuner in any pipeline."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.artifacts import outputs
from tests.components.trainer.test_settings import RUN, channels
from tfx_estimator.components.trainer import Trainer
from tfx_estimator.components.trainer.executor import Executor
from tfx_estimator.components.trainer.settings import OPERATION_KEY, Settings
from tfx_estimator.components.tuner import Tuner
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.distribution import Distribution

MIRRORED = {"strategy": "mirrored", "devices": {"cpu": 2}}
WORKERS = {"strategy": "multi_worker_mirrored", "workers": 2}
RUNTIME: dict[str, Any] = {
    "threads": {"intra_op": 2},
    "gpu": {"memory_growth": True},
    "onednn": False,
    "profile": {"start_step": 4},
}
RUN_ESTIMATOR = """
import tensorflow as tf
def make(fn_args, schema): return {"estimator": tf.estimator.Estimator(1), "train_spec": 2, "eval_spec": 3}
def run_fn(fn_args): tf.estimator.train_and_evaluate(**make(fn_args, None))
"""
BOTH = RUN + "def trainer_fn(fn_args, schema): ...\n"
GIVEN = Settings(arguments={"onednn": False})
OF_RUN_FN = {"trainer_fn": None, "run_fn": "no_such.run_fn"}


def properties(component: type = Trainer, **given: Any) -> dict[str, Any]:
    tune = {"tune": {"ranges": {"units": [1, 2]}}} if component is Tuner else {}
    return component(**channels(), **{"trainer_fn": "no_such.trainer_fn", **tune, **given}).exec_properties


def made(component: type = Trainer, **given: Any) -> Settings:
    return Settings.of(properties(component, **given))


def keyed(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in properties(**given).items() if name != OPERATION_KEY}


def store(folder: Path, content: bytes) -> str:
    """Writes fake weights, which are never read; returns their path."""
    folder.mkdir(exist_ok=True)
    (folder / "model.ckpt-1.index").write_bytes(b"index")
    (folder / "model.ckpt-1.data-00000-of-00001").write_bytes(content)
    return str(folder / "model.ckpt-1")


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return store(tmp_path / "weights", b"one")


def test_a_distribution_is_passed_to_the_executor():
    section = {"train": WORKERS, "evaluator": True, "max_restarts": 1}
    typed = Distribution.parse_obj(section)
    for given in ({**section, "train": {**WORKERS, "workers": np.int64(2)}}, typed):
        settings = made(distribution=given, settings=Settings(stall_timeout=9.0))
        assert (settings.distribution, settings.stall_timeout) == (typed, 9.0)
    # An empty one equals none.
    assert keyed(distribution={}) == keyed()


def test_threads_and_devices_are_passed_on_and_not_part_of_the_key():
    section = made(**RUNTIME).section
    assert section.environment == {
        "TF_NUM_INTRAOP_THREADS": "2",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }
    assert (section.profile.start_step, section.profile.steps) == (4, 20)
    assert (made().section.environment, made().section.profile) == ({}, None)
    assert keyed(**RUNTIME) == keyed()
    assert keyed(**RUNTIME, distribution={"train": WORKERS}) == keyed(distribution={"train": WORKERS})
    assert made(**RUNTIME, distribution={"train": WORKERS}).section.onednn is False


def test_code_of_tensorflow_1_is_an_argument_and_part_of_the_key():
    for component in (Trainer, Tuner):
        assert [made(component, **given).section.tf1 for given in ({"tf1": True}, {}, {"tf1": False})] == [
            True,
            False,
            False,
        ]
    assert keyed(tf1=True) != keyed() == keyed(tf1=False)


def test_the_path_and_content_of_weights_are_part_of_the_key(checkpoint, tmp_path, monkeypatch):
    given = {"warm_start": {"checkpoint": checkpoint, "exclude": ["head/*"]}}
    begun = made(**given).section.warm_start
    assert (begun.source, begun.exclude) == (checkpoint, ("head/*",))
    first = keyed(**given)
    assert first == keyed(**given)
    assert first not in (keyed(), keyed(warm_start={"checkpoint": checkpoint}))
    store(tmp_path / "weights", b"other")
    assert first != keyed(**given)
    # Relative to the folder where the pipeline is built; it trains elsewhere.
    monkeypatch.chdir(tmp_path)
    assert made(warm_start={"checkpoint": "weights/model.ckpt-1"}).section.warm_start.source == checkpoint


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"distribution": {"train": {"strategy": "mirored"}}}, "did you mean `mirrored`?"),
        ({"distribution": {"strategy": "mirrored"}}, "did you mean `train.strategy`?"),
        ({"distribution": {"train": {"strategy": "mirrored", "workers": 2}}}, "the strategy mirrored takes no workers"),
        ({"distribution": {"train": MIRRORED, "evaluator": True}}, "  evaluator: True\n"),
        ({"distribution": {"train": WORKERS, "sharding": "file"}}, "it is for the built-in input_fn"),
        ({"distribution": {"train": {"workers": "two"}}}, "a str is no number"),
        ({"distribution": {"network": True}}, "give a str"),
        ({"distribution": "mirrored"}, "Trainer(distribution=…) is 'mirrored'"),
        ({"distribution": {}, "settings": GIVEN}, "values in one place"),
        ({"threads": {"intra": 2}}, "did you mean `intra_op`?"),
        ({"threads": {"intra_op": object()}}, "Trainer(threads=…): threads.intra_op is an object, builtins.object"),
        ({"gpu": {"memory_limit_mb": 1}}, "\n  gpu.memory_limit_mb: 1\n"),
        ({"onednn": "no idea", "threads": {"intra_op": 0}}, "Trainer(threads=…, onednn=…) has 2 problems"),
        ({"profile": {}, **OF_RUN_FN}, "a run_fn runs its own steps"),
        ({"threads": {"inter_op": 2}, "distribution": {"train": "parameter_server:2"}}, "would deadlock"),
        ({"onednn": True, "settings": GIVEN}, "values in one place"),
        ({"tf1": "yes"}, "Trainer(tf1=…) has 1 problem"),
        ({"warm_start": {"checkpoint": "no/such"}}, "check the path: it is relative to the current folder"),
        ({"warm_start": {}}, "none of the four is given"),
        ({"warm_start": "before"}, "Trainer(warm_start=…) is '"),
        ({"warm_start": {"checkpoint": "{}"}, **OF_RUN_FN}, "a run_fn makes its own model"),
        ({"settings": Settings(start_timeout="5 min")}, "start_timeout: 5 min"),
        ({"settings": Settings(stall_timeout=float("inf"))}, "Trainer(settings=Settings(stall_timeout=…))"),
    ],
)
def test_wrong_arguments_are_refused_in_terms_of_python(checkpoint, given, message):
    if "{}" in str(begun := given.get("warm_start")):
        given = {**given, "warm_start": {key: value.format(checkpoint) for key, value in begun.items()}}
    with pytest.raises(DeclarationError, match=re.escape(message)) as found:
        properties(**given)
    for words in ("trainer.", "--set", "the line", "YAML reads", "quotes", "null"):
        assert words not in str(found.value).replace("trainer.model", "")


def test_numpy_numbers_become_plain_ones_and_a_declaration_is_passed_whole():
    for component in (Trainer, Tuner):
        assert made(component, settings=Settings(stall_timeout=np.int64(3600))).stall_timeout == 3600
        assert made(component, settings=None).stall_timeout == 600.0
    declared = load("digits").declaration
    assert made(settings=Settings(declaration=declared.dict(), path="estimator")).trainer == declared.trainer


@pytest.mark.parametrize(
    ("text", "train", "message"),
    [
        (RUN_ESTIMATOR, WORKERS, "into a `def trainer_fn(fn_args, schema)`"),
        (RUN_ESTIMATOR, {"strategy": "parameter_server"}, "its chief would train alone, and export nothing"),
        (RUN, MIRRORED, None),
        (RUN, WORKERS, None),
        (BOTH, WORKERS, 'trainer_fn="dist_module.trainer_fn"'),
        (RUN + "from elsewhere import trainer_fn\n", WORKERS, 'trainer_fn="dist_module.trainer_fn"'),
    ],
)
def test_arguments_that_a_run_fn_ignores_are_refused_when_the_pipeline_is_built(importable, text, train, message):
    (importable / "dist_module.py").write_text(text)
    functions: list[dict] = [{"module_file": str(importable / "dist_module.py")}]
    # A dotted name is unambiguous.
    functions += [] if "trainer_fn" in text else [{"run_fn": "dist_module.run_fn"}]
    for function in functions:
        given = {"trainer_fn": None, "distribution": {"train": train}, **function}
        if message is None:
            assert made(**given).path == "run_fn"
            continue
        with pytest.raises(DeclarationError, match=re.escape(message)):
            properties(**given)
        properties(**{**given, "distribution": {"max_restarts": 1}})


def execute(folder: Path, arguments: dict[str, Any], **functions: str) -> None:
    properties = {"train_args": "{}", "eval_args": "{}", **Settings(arguments=arguments).to_properties(), **functions}
    Executor().Do({}, outputs(folder, 1), properties)


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("from mykeras import *\n", {"distribution": {"eval": MIRRORED}}, "a run_fn evaluates by itself"),
        (RUN_ESTIMATOR, {"distribution": {"train": WORKERS}}, "this run_fn trains an Estimator"),
        (RUN, {"warm_start": {"checkpoint": "before"}}, "a run_fn makes its own model"),
    ],
)
def test_a_run_fn_that_is_found_late_is_refused_before_training(importable, text, arguments, message):
    (importable / "mine.py").write_text(text)
    with zipfile.ZipFile(importable / "mine-0.whl", "w") as wheel:
        wheel.write(importable / "mine.py", "mine.py")
    # As TFX passes a RuntimeParameter, a packed module file, and a name.
    for functions in (
        {"module_file": f"{importable}/mine.py"},
        {"module_path": f"mine@{importable}/mine-0.whl"},
        {"run_fn": "mine.run_fn"},
    ):
        with pytest.raises(DeclarationError, match=message):
            execute(importable, arguments, **functions)
    assert not list(importable.rglob("*.log"))
