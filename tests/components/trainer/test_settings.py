"""The settings of a Trainer beyond TFX's parameters: their properties, and their part in the cache key."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from absl import logging as absl_logging
from tfx.orchestration.data_types import RuntimeParameter
from tfx.types import Channel, standard_artifacts

from tfx_estimator.components.trainer import Trainer
from tfx_estimator.components.trainer.executor import Executor
from tfx_estimator.components.trainer.settings import OPERATION_KEY, SETTINGS_KEY, Settings
from tfx_estimator.pipeline.base.errors import DeclarationError, PipelineError
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.json_schema import json_schema
from tfx_estimator.pipeline.config.kinds import is_section
from tfx_estimator.pipeline.config.section import Section

WORKERS = {"strategy": "multi_worker_mirrored", "workers": 2}
OPERATIONAL = {
    *(f"trainer.{name}" for name in ("keep_checkpoint_max", "log_every_steps", "steps_per_execution")),
    *(f"trainer.{name}" for name in ("profile", "tensorboard")),
    *(f"trainer.{name}" for name in ("intra_op_threads", "threads", "gpu", "onednn", "start_timeout", "stall_timeout")),
    *(f"trainer.{name}" for name in ("model_parallel", "parallel_parts", "pipeline_parallel.devices")),
    *(f"trainer.distribution.{name}" for name in ("acknowledge", "max_restarts", "network")),
    *(f"trainer.distribution.train.{name}" for name in ("timeout_seconds", "tpu")),
}


def channels() -> dict[str, Any]:
    return {"examples": Channel(type=standard_artifacts.Examples)}


def marked(section: type[Section], path: str = "") -> set[str]:
    """Returns the dotted paths of the fields that are marked as operational."""
    found = set()
    for name, field in section.__fields__.items():
        if field.operational:
            found.add(path + name)
        elif is_section(field.kind):
            found |= marked(field.kind, f"{path}{name}.")
    return found


def test_operational_fields_are_marked_and_the_mark_is_not_in_the_schema():
    others = {"tune.max_consecutive_failures", "tracking.mlflow", "trainer.files", "transform.files"}
    assert marked(Declaration) == {*OPERATIONAL, *others}
    assert "operational" not in json.dumps(json_schema(Declaration))


def test_settings_are_passed_whole_in_two_properties():
    declared = Declaration.parse_obj(
        {
            "name": "one",
            "data": {"dataset": "digits"},
            "trainer": {
                "model": "mnist_cnn",
                "train_steps": 7,
                "intra_op_threads": 3,
                "params": {"network": 1, "max_restarts": 2},
                "distribution": {"train": {**WORKERS, "timeout_seconds": 9.0, "devices": {"gpu": [1, 3]}}},
            },
        }
    )
    settings = Settings(
        start_timeout=1.0,
        declaration={"trainer": declared.trainer.dict()},
        image_shape=(2, 3, 1),
        label_names=("a", "b"),
        source="abc",
        path="estimator",
    )
    read = Settings.of(settings.to_properties())
    assert read.trainer == settings.trainer == declared.trainer
    assert dataclasses.replace(read, declaration=None) == dataclasses.replace(settings, declaration=None)
    # A user's own entries are kept under any name.
    properties = settings.to_properties()
    assert '"params": {"max_restarts": 2, "network": 1}' in properties[SETTINGS_KEY]
    foreign = Settings(arguments={"distribution": {"train": WORKERS, "max_restarts": 1}}, stall_timeout=9.0)
    assert Settings.of(foreign.to_properties()).distribution == foreign.distribution
    assert Settings.of(foreign.to_properties()).stall_timeout == 9.0
    assert Settings.of({"custom_config": "null"}) == Settings()


@pytest.mark.parametrize("name", sorted(OPERATIONAL))
def test_an_operational_value_changes_only_the_blanked_property(name):
    values: dict[str, Any] = {
        "network": "host",
        "acknowledge": ["dropout"],
        "tpu": "other",
        "threads": {"inter_op": 3},
        "gpu": {"memory_limit_mb": 100},
        "onednn": False,
        "profile": {"start_step": 2, "steps": 4},
        "tensorboard": {"images": 16},
        "model_parallel": {"devices": ["cpu:0", "cpu:1"], "layers": {"*": 1}},
        "devices": ["cpu:0", "cpu:1"],
    }
    parts, key = name.split(".")[1:-1], name.rpartition(".")[2]
    trainer: dict[str, Any] = {"model": "mnist_cnn", "train_steps": 7}
    if "pipeline_parallel" in parts:
        trainer["pipeline_parallel"] = {"stages": 2, "microbatches": 2}
    changed = section = json.loads(json.dumps(trainer))
    for part in parts:
        section = section.setdefault(part, {})
    section[key] = values.get(key, 17)
    one, other = (Settings(declaration={"trainer": each}).to_properties() for each in (trainer, changed))
    assert one[SETTINGS_KEY] == other[SETTINGS_KEY]
    assert one[OPERATION_KEY] != other[OPERATION_KEY]
    assert Settings.of(other).trainer == Settings(declaration={"trainer": changed}).trainer


def test_the_keys_of_releases_without_a_field_stay_the_same():
    def key(**trainer: Any) -> dict[str, Any]:
        return json.loads(Settings(declaration={"trainer": trainer}).to_properties()[SETTINGS_KEY])

    begins = {"checkpoint": "model.ckpt-9"}
    trainer = key(warm_start=begins)["declaration"]["trainer"]
    assert "freeze" not in trainer
    assert trainer["warm_start"].keys() == {"checkpoint", "model", "blessed", "vocabularies", "exclude", "resume"}
    for changed in (
        key(freeze=["base"]),
        key(warm_start={**begins, "prefix": "base"}),
        key(warm_start={"weights": "a"}),
    ):
        assert changed not in (key(), key(warm_start=begins))
    read = Settings.of(Settings(declaration={"trainer": {"freeze": ["base"], "warm_start": begins}}).to_properties())
    assert (read.section.freeze, read.section.warm_start.checkpoint) == (("base",), "model.ckpt-9")


@pytest.mark.parametrize(
    ("distribution", "keyed"),
    [
        ({"max_restarts": 9}, False),
        ({"network": "host"}, False),
        ({"train": {**WORKERS, "timeout_seconds": 9.0}}, False),
        ({"train": {**WORKERS, "workers": 3}}, True),
        ({"evaluator": True}, True),
    ],
)
def test_the_distribution_parameter_is_keyed_like_a_declarations(distribution, keyed):
    def key(section: dict[str, Any]) -> dict[str, Any]:
        trainer = Trainer(**channels(), trainer_fn="no_such.trainer_fn", distribution={"train": WORKERS, **section})
        assert trainer.driver_class.UNKEYED == (OPERATION_KEY,)
        return {name: value for name, value in trainer.exec_properties.items() if name != OPERATION_KEY}

    assert (key({}) != key(distribution)) is keyed


@pytest.mark.parametrize("name", ["throttle_secs", "start_delay_secs"])
def test_the_evaluators_pace_is_keyed_as_a_best_exporter_chooses_among_evaluations(name):
    sections: list[dict[str, Any]] = [{"evaluator": True}, {"evaluator": True, name: 9}]
    one, other = (Settings(arguments={"distribution": section}).to_properties()[SETTINGS_KEY] for section in sections)
    assert one != other


def test_every_runtime_parameter_of_tfx_is_accepted():
    def parameter(name: str) -> RuntimeParameter:
        return RuntimeParameter(name=name, ptype=str)

    both = {name: parameter(name) for name in ("train_args", "eval_args", "custom_config")}
    for name, path in (("module_file", ""), ("run_fn", "run_fn"), ("trainer_fn", "estimator")):
        trainer = Trainer(**channels(), **{name: parameter(name)}, **both)
        assert trainer.exec_properties[name].name == name
        assert all(trainer.exec_properties[each].name == each for each in both)
        assert Settings.of(trainer.exec_properties).path == path


RUN = "def run_fn(fn_args): pass\n"
TRAIN = "def trainer_fn(fn_args, schema): pass\n"


def executor(name: str | None) -> Any:
    from tfx.components.trainer import executor as tfx_executor
    from tfx.dsl.components.base.executor_spec import ExecutorClassSpec

    if name == "Executor" and not stacks.current().has_trainer_fn_executor:
        pytest.skip(f"TFX {stacks.current().tfx} has no executor of its own for a trainer_fn")
    return ExecutorClassSpec(getattr(tfx_executor, name)) if name else None


@pytest.mark.parametrize(
    ("text", "named", "path"),
    [
        (RUN, None, "run_fn"),
        (TRAIN, None, "estimator"),
        (RUN + TRAIN, None, "run_fn"),
        (RUN + TRAIN, "GenericExecutor", "run_fn"),
        (RUN + TRAIN, "Executor", "estimator"),
        ("from elsewhere import *\n" + TRAIN, None, ""),
        ("from elsewhere import *\n" + TRAIN, "Executor", "estimator"),
        ("from elsewhere import *\n" + RUN, None, "run_fn"),
        ("if True:\n    from elsewhere import run_fn\n" + TRAIN, None, "run_fn"),
        ("def (\n", None, ""),
    ],
)
def test_the_function_is_the_one_that_tfx_calls(tmp_path: Path, text, named, path):
    file = tmp_path / "module.py"
    file.write_text(text)
    trainer = Trainer(**channels(), module_file=str(file), custom_executor_spec=executor(named))
    assert trainer.executor_spec.executor_class is Executor
    assert Settings.of(trainer.exec_properties).path == path


def test_the_executor_gets_a_trainer_fn_and_no_other_function():
    trainer = Trainer(**channels(), trainer_fn="m.f")
    assert trainer.exec_properties["trainer_fn"] == "m.f"
    assert not trainer.exec_properties.get("run_fn")
    with pytest.raises(DeclarationError, match="given a run_fn and a trainer_fn"):
        Trainer(**channels(), run_fn="m.g", trainer_fn="m.f")


def test_a_module_file_without_either_function_is_refused(tmp_path: Path):
    (tmp_path / "module.py").write_text("x = 1\n")
    with pytest.raises(DeclarationError, match="defines neither run_fn nor trainer_fn"):
        Trainer(**channels(), module_file=str(tmp_path / "module.py"))


def test_a_dotted_function_that_is_missing_here_is_no_error_and_not_in_the_key(tmp_path, monkeypatch):
    warned: list[str] = []
    monkeypatch.setattr(absl_logging, "warning", lambda text, *args: warned.append(text % args))
    trainer = Trainer(**channels(), run_fn="only_in_the_container.run_fn")
    assert len(warned) == 1
    assert "does not include its user code: there is no source of 'only_in_the_container:run_fn'" in warned[0]
    without = Settings.of(trainer.exec_properties).source
    (tmp_path / "only_in_the_container.py").write_text(RUN)
    monkeypatch.syspath_prepend(str(tmp_path))
    trainer = Trainer(**channels(), run_fn="only_in_the_container.run_fn")
    assert len(warned) == 1
    assert "" != without != Settings.of(trainer.exec_properties).source


def test_an_execution_without_the_operational_part_is_refused():
    properties = Settings(stall_timeout=3.0).to_properties()
    assert Settings.of(properties).stall_timeout == 3.0
    with pytest.raises(PipelineError, match="lacks the property tfx_estimator_operation"):
        Settings.of({**properties, OPERATION_KEY: ""})
    with pytest.raises(PipelineError, match="have runtime, which this release does not know"):
        Settings.of({**properties, OPERATION_KEY: '{"runtime": {}}'})


def test_an_unknown_executor_is_refused():
    from tfx.dsl.components.base.executor_spec import ExecutorClassSpec
    from tfx.extensions.google_cloud_ai_platform.trainer import executor as cloud_executor

    spec = ExecutorClassSpec(cloud_executor.GenericExecutor)
    with pytest.raises(DeclarationError, match="this Trainer's own executor supervises the training"):
        Trainer(**channels(), run_fn="a.b", custom_executor_spec=spec)
