"""What a Trainer, or a Tuner, of anybody's pipeline is given of a declaration's section `trainer`."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.components.trainer.test_settings import RUN, channels
from tfx_estimator.components.trainer import Trainer
from tfx_estimator.components.trainer.executor import Executor
from tfx_estimator.components.trainer.settings import OPERATION_KEY, Settings
from tfx_estimator.components.tuner import Tuner
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.trainer import TrainerSection

pytestmark = pytest.mark.unit

MIRRORED = {"strategy": "mirrored", "devices": {"cpu": 2}}
WORKERS = {"strategy": "multi_worker_mirrored", "workers": 2}
RUNTIME: dict[str, Any] = {
    "threads": {"intra_op": 2},
    "gpu": {"memory_growth": True},
    "onednn": False,
    "profile": {"start_step": 4},
}
# Of the built-in step: what to do in place of each.
TECHNIQUES: dict[str, tuple[Any, str]] = {
    "gradient_accumulation": (4, "remove it, and accumulate in your own step"),
    "precision": ("mixed_bfloat16", "call tf.keras.mixed_precision.set_global_policy in your code"),
    "xla": (True, "wrap the step in tf.function(jit_compile=True) in your code"),
    "sync_every": (4, "average the weights in your own loop"),
    "model_parallel": ({"devices": ["cpu:0", "cpu:1"], "layers": {"a": 1}}, "write `with tf.device(…)` around the"),
    "pipeline_parallel": ({"stages": 2, "microbatches": 2}, "write `with tf.device(…)` around the layers"),
}
RUN_ESTIMATOR = """
import tensorflow as tf
def make(fn_args, schema): return {"estimator": tf.estimator.Estimator(1), "train_spec": 2, "eval_spec": 3}
def run_fn(fn_args): tf.estimator.train_and_evaluate(**make(fn_args, None))
"""
BOTH = RUN + "def trainer_fn(fn_args, schema): ...\n"
GIVEN = Settings(arguments={"onednn": False})
DECLARED = Settings(declaration={"trainer": {"model": "mnist_cnn", "train_steps": 1}})


def properties(component: type = Trainer, **given: Any) -> dict[str, Any]:
    tune = {"tune": {"ranges": {"units": [1, 2]}}} if component is Tuner else {}
    return component(**channels(), **{"trainer_fn": "no_such.trainer_fn", **tune, **given}).exec_properties


def made(component: type = Trainer, **given: Any) -> Settings:
    return Settings.of(properties(component, **given))


def keyed(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in properties(**given).items() if name != OPERATION_KEY}


def store(folder: Path, content: bytes) -> str:
    """What stands for weights; nothing reads them."""
    folder.mkdir(exist_ok=True)
    (folder / "model.ckpt-1.index").write_bytes(b"index")
    (folder / "model.ckpt-1.data-00000-of-00001").write_bytes(content)
    return str(folder / "model.ckpt-1")


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return store(tmp_path / "weights", b"one")


def test_a_distribution_travels_to_the_executor():
    section = {"train": WORKERS, "evaluator": True, "max_restarts": 1}
    typed = Distribution.parse_obj(section)
    for given in ({**section, "train": {**WORKERS, "workers": np.int64(2)}}, typed):
        settings = made(distribution=given, settings=Settings(stall_timeout=9.0))
        assert (settings.distribution, settings.stall_timeout) == (typed, 9.0)
    # One that says nothing is none.
    assert keyed(distribution={}) == keyed()


def test_threads_and_devices_travel_and_are_no_part_of_the_key():
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


def test_the_weights_are_part_of_the_key_and_their_content_is(checkpoint, tmp_path, monkeypatch):
    given = {"warm_start": {"checkpoint": checkpoint, "exclude": ["head/*"]}}
    begun = made(**given).section.warm_start
    assert (begun.prefix, begun.exclude) == (checkpoint, ("head/*",))
    first = keyed(**given)
    assert first == keyed(**given)
    assert first not in (keyed(), keyed(warm_start={"checkpoint": checkpoint}))
    store(tmp_path / "weights", b"other")
    assert first != keyed(**given)
    # Relative to where the pipeline is made; it trains elsewhere.
    monkeypatch.chdir(tmp_path)
    assert made(warm_start={"checkpoint": "weights/model.ckpt-1"}).section.warm_start.prefix == checkpoint


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"distribution": {"train": {"strategy": "mirored"}}}, "did you mean `mirrored`?"),
        ({"distribution": {"strategy": "mirrored"}}, "did you mean `train.strategy`?"),
        ({"distribution": {"train": {"strategy": "mirrored", "workers": 2}}}, "the strategy mirrored takes no workers"),
        ({"distribution": {"train": MIRRORED, "evaluator": True}}, "  evaluator: True\n"),
        ({"distribution": {"train": WORKERS, "sharding": "file"}}, "it is for the built-in input_fn"),
        ({"distribution": {"train": {"workers": "two"}}}, "a str is no number"),
        ({"distribution": {"network": True}}, "give a str"),
        ({"distribution": "mirrored"}, "Trainer(distribution=…) is 'mirrored'"),
        ({"distribution": {}, "settings": GIVEN}, "them in one place"),
        ({"threads": {"intra": 2}}, "did you mean `intra_op`?"),
        ({"threads": {"intra_op": object()}}, "Trainer(threads=…): threads.intra_op is an object, builtins.object"),
        ({"gpu": {"memory_limit_mb": 1}}, "\n  gpu.memory_limit_mb: 1\n"),
        ({"onednn": "no idea", "threads": {"intra_op": 0}}, "Trainer(threads=…, onednn=…) has 2 problems"),
        ({"profile": {}, "trainer_fn": None, "run_fn": "no_such.run_fn"}, "a run_fn does its steps by itself"),
        (
            {"threads": {"inter_op": 2}, "distribution": {"train": {"strategy": "parameter_server", "workers": 2}}},
            "would wait for each other for ever",
        ),
        ({"onednn": True, "settings": GIVEN}, "them in one place"),
        ({"warm_start": {"checkpoint": "no/such"}}, "check the path: it is relative to the current folder"),
        ({"warm_start": {}}, "none of the two is given"),
        ({"warm_start": "before"}, "Trainer(warm_start=…) is '"),
        (
            {"warm_start": {"checkpoint": "{}"}, "trainer_fn": None, "run_fn": "no_such.run_fn"},
            "a run_fn makes its own model",
        ),
        ({"settings": Settings(start_timeout="5 min")}, "start_timeout: 5 min"),
        ({"settings": Settings(stall_timeout=float("inf"))}, "Trainer(settings=Settings(stall_timeout=…))"),
        ({"settings": {"start_timeout": 3}}, "from tfx_estimator import Settings"),
        ({"train_steps": 10, "xla": True}, "say train_args=trainer_pb2.TrainArgs(num_steps=…)"),
        ({"optimizer": {"name": "sgd"}}, "the function that is called decides it by itself"),
        ({"stall_timeout": 5}, "settings=Settings(stall_timeout=…)"),
        ({"gradient_accumulation": 0}, "out of range"),
        ({"augment": object()}, "Trainer(augment=…): augment is an object, builtins.object"),
        ({"xla": True, "settings": DECLARED}, "in one place"),
    ],
)
def test_what_is_wrong_is_refused_in_pythons_words(checkpoint, given, told):
    if "{}" in str(begun := given.get("warm_start")):
        given = {**given, "warm_start": {key: value.format(checkpoint) for key, value in begun.items()}}
    with pytest.raises(DeclarationError, match=re.escape(told)) as found:
        properties(**given)
    for words in ("trainer.", "--set", "the line", "YAML as", "quotes", "null"):
        assert words not in str(found.value).replace("trainer.model", "")


def test_numbers_of_numpy_are_plain_ones_and_a_declaration_travels_whole():
    for component in (Trainer, Tuner):
        assert made(component, settings=Settings(stall_timeout=np.int64(3600))).stall_timeout == 3600
        assert made(component, settings=None).stall_timeout == 600.0
    declared = load("digits").declaration
    assert made(settings=Settings(declaration=declared.dict(), path="estimator")).trainer == declared.trainer


@pytest.mark.parametrize("name", TECHNIQUES)
@pytest.mark.parametrize("function", ["trainer_fn", "run_fn"])
def test_a_technique_of_the_built_in_step_is_refused_with_the_reason_and_what_to_do(name, function):
    value, todo = TECHNIQUES[name]
    with pytest.raises(DeclarationError, match=re.escape(f"Trainer({name}=…) has 1 problem")) as found:
        properties(**{"trainer_fn": None, function: "no_such.function", name: value})
    assert "a module file's trainer_fn or run_fn " in str(found.value)
    assert todo in str(found.value)


def test_each_entry_of_the_section_is_known_and_its_default_asks_for_nothing():
    # Others are parameters.
    own = ("module_file", "warm_start", "threads", "gpu", "onednn", "profile", "distribution")
    defaults = {name: field.default for name, field in TrainerSection.__fields__.items() if name not in own}
    assert properties(**defaults) == properties()
    with pytest.raises(TypeError, match=re.escape("Trainer.__init__() got an unexpected keyword argument 'exampels'")):
        properties(exampels=None)


@pytest.mark.parametrize(
    ("text", "train", "told"),
    [
        (RUN_ESTIMATOR, WORKERS, 'trainer_fn="dist_module.make"'),
        (RUN_ESTIMATOR, {"strategy": "parameter_server"}, "its chief would train alone, and export nothing"),
        (RUN, MIRRORED, None),
        (RUN, WORKERS, None),
        (BOTH, WORKERS, 'trainer_fn="dist_module.trainer_fn"'),
        (RUN + "from elsewhere import trainer_fn\n", WORKERS, 'trainer_fn="dist_module.trainer_fn"'),
    ],
)
def test_what_a_run_fn_cannot_be_given_is_refused_when_the_pipeline_is_built(tmp_path, monkeypatch, text, train, told):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "dist_module.py").write_text(text)
    functions: list[dict] = [{"module_file": str(tmp_path / "dist_module.py")}]
    # A dotted name says which is meant.
    functions += [] if "trainer_fn" in text else [{"run_fn": "dist_module.run_fn"}]
    for function in functions:
        given = {"trainer_fn": None, "distribution": {"train": train}, **function}
        if told is None:
            assert made(**given).path == "run_fn"
            continue
        with pytest.raises(DeclarationError, match=re.escape(told)):
            properties(**given)
        properties(**{**given, "distribution": {"max_restarts": 1}})


def test_of_a_module_with_both_functions_the_one_that_is_named_is_distributed(tmp_path, monkeypatch):
    from tfx.components.trainer import executor as tfx_executor
    from tfx.dsl.components.base.executor_spec import ExecutorClassSpec

    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "dist_module.py").write_text(BOTH)
    file = {"module_file": str(tmp_path / "dist_module.py")}
    named = [
        ("estimator", {"trainer_fn": "dist_module.trainer_fn"}),
        ("run_fn", {"run_fn": "dist_module.run_fn"}),
        ("run_fn", {**file, "custom_executor_spec": ExecutorClassSpec(tfx_executor.GenericExecutor)}),
    ]
    if stacks.current().has_trainer_fn_executor:
        named.append(("estimator", {**file, "custom_executor_spec": ExecutorClassSpec(tfx_executor.Executor)}))
    for path, how in named:
        assert made(**{"trainer_fn": None, "distribution": {"train": WORKERS}, **how}).path == path


def execute(folder: Path, arguments: dict[str, Any], **functions: str) -> None:
    from tfx.types import standard_artifacts

    outputs = {"model": standard_artifacts.Model(), "model_run": standard_artifacts.ModelRun()}
    for name, artifact in outputs.items():
        artifact.uri = str(folder / name / "1")
    told = {"train_args": "{}", "eval_args": "{}", **Settings(arguments=arguments).to_properties(), **functions}
    Executor().Do({}, {name: [artifact] for name, artifact in outputs.items()}, told)


@pytest.mark.parametrize(
    ("text", "arguments", "told"),
    [
        ("from mykeras import *\n", {"distribution": {"eval": MIRRORED}}, "a run_fn evaluates by itself"),
        (RUN_ESTIMATOR, {"distribution": {"train": WORKERS}}, "this run_fn trains an Estimator"),
        (RUN, {"warm_start": {"checkpoint": "before"}}, "a run_fn makes its own model"),
    ],
)
def test_a_run_fn_that_is_found_late_is_refused_before_anything_is_trained(
    tmp_path, monkeypatch, text, arguments, told
):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine.py").write_text(text)
    with zipfile.ZipFile(tmp_path / "mine-0.whl", "w") as wheel:
        wheel.write(tmp_path / "mine.py", "mine.py")
    # As TFX hands on a RuntimeParameter, a module file that it packed, and a name.
    for functions in (
        {"module_file": f"{tmp_path}/mine.py"},
        {"module_path": f"mine@{tmp_path}/mine-0.whl"},
        {"run_fn": "mine.run_fn"},
    ):
        with pytest.raises(DeclarationError, match=told):
            execute(tmp_path, arguments, **functions)
    assert not list(tmp_path.rglob("*.log"))
