"""Warnings of options for another path, strategy, task or model, and of nothing else."""

from __future__ import annotations

import pytest

from tests.folders import write_files
from tfx_estimator.pipeline.config import load

_CLUSTER = "trainer.distribution.train.strategy=multi_worker_mirrored"
_EVALUATOR = [_CLUSTER, "trainer.distribution.evaluator=true"]


@pytest.mark.parametrize(
    ("override", "whose", "fitting"),
    [
        ("trainer.steps_per_execution=20", "the Keras paths", ["trainer.path=keras"]),
        ("trainer.distribution.sharding=element", "a cluster, and there is one process", [_CLUSTER]),
        ("trainer.distribution.start_delay_secs=0", "the evaluator task, and there is none", _EVALUATOR),
    ],
)
def test_options_of_another_path_strategy_or_task_have_a_warning(write, good, override, whose, fitting):
    write(good)
    message = f"{override.partition('=')[0]} has no effect: it is for {whose}"
    assert load("mine.yaml", [override]).warnings == (f"--set  {message}",)
    assert load("mine.yaml", [override, *fitting]).warnings == ()
    (warning,) = load(write(good + "  steps_per_execution: 7\n")).warnings
    assert warning == "mine.yaml:8  trainer.steps_per_execution has no effect: it is for the Keras paths"


@pytest.mark.parametrize(("file", "warned"), [("train-images-idx3-ubyte", True), ("1.0.0/dataset_info.json", False)])
def test_a_version_has_no_effect_on_files(write, good, tmp_path, file, warned):
    write_files(tmp_path / "held", {file: ""})
    write(good.replace("mnist\n", "./held\n  version: 1.0.0\n", 1).replace(", eval: test", ", eval: 'train[90%:]'"))
    what = "mine.yaml:4  data.version has no effect: it is for TFDS data sets, and these are files"
    assert load("mine.yaml").warnings == ((what,) if warned else ())


def test_throttle_secs_has_no_effect_where_each_checkpoint_is_evaluated(write, good):
    write(good)
    override = "trainer.distribution.throttle_secs=30"
    assert load("mine.yaml", [override]).warnings == ()
    (warning,) = load("mine.yaml", [override, "trainer.keep_best=accuracy"]).warnings
    assert "throttle_secs has no effect" in warning


@pytest.mark.parametrize(
    ("optimizer", "warned"),
    [
        ("{name: adamw, weight_decay: 0.01}", True),
        ("{name: adamw, weight_decay: 0.01, decoupled_weight_decay: 0.004}", False),
        ("{name: adamw, decoupled_weight_decay: 0.01}", False),
        ("{name: sgd, weight_decay: 0.01}", False),
    ],
)
def test_weight_decay_in_addition_to_that_of_adamw_has_a_warning(write, good, optimizer, warned):
    warnings = load(write(f"{good}  optimizer: {optimizer}\n")).warnings
    assert len(warnings) == warned
    if warned:
        assert warnings[0].startswith("mine.yaml:8  trainer.optimizer.weight_decay is L2 on kernels")


def test_the_output_of_show_has_no_new_warnings(write, good, cli):
    write(good + "tune: {ranges: {trainer.optimizer.momentum: [0.5, 0.9]}}\n")
    whole = load(write(cli("show", "mine.yaml").out, "whole.yaml"))
    assert whole.declaration == load("mine.yaml").declaration
    assert whole.warnings == ()


OURS = "model: mnist_cnn"
WHOLE = 'def net(features, labels, mode, params):\n    return params["units"], params["optimizer"]["name"]\n'
MORE = "  params: {units: 3, depth: 2}\n  optimizer: {name: adam, learning_rate: 0.1}\n"


@pytest.fixture
def declare(write, good):
    def text(module: str, more: str = MORE, model: str = "model: mynet:net") -> None:
        write(module, "mynet.py")
        write(good.replace(OURS, f"{model}\n{more}".rstrip()))

    return text


def test_options_that_a_model_fn_does_not_read_have_one_warning(declare, cli):
    declare(WHOLE)
    (warning,) = load("mine.yaml").warnings
    assert warning.startswith("mine.yaml:")
    assert "trainer.params.depth, trainer.optimizer.learning_rate have no effect: mynet:net does not read" in warning
    assert f"    warning: {warning}\n" in cli("validate", "mine.yaml").out
    output = cli("show", "mine.yaml")
    assert "warning" not in output.out
    assert warning in output.err


@pytest.mark.parametrize(
    "module",
    [
        "def net(num_classes, units, depth): pass\n",
        "def net(features, labels, mode, params):\n    build(params)\n",
        "from elsewhere import net\n",
    ],
)
def test_networks_and_undecidable_code_have_no_warnings(declare, module):
    declare(module)
    assert load("mine.yaml").warnings == ()


def test_defaults_and_presets_have_no_warnings(declare):
    declare(WHOLE, "")
    assert load("mine.yaml").warnings == ()
    assert load("mnist", ["trainer.model=mynet:net"]).warnings == ()
    (warning,) = load("mnist", ["trainer.model=mynet:net", "trainer.optimizer.momentum=0.05"]).warnings
    assert warning == "--set  trainer.optimizer.momentum has no effect: mynet:net does not read it from params"


def test_options_of_the_loss_and_params_of_a_module_file_have_a_warning(declare):
    declare(WHOLE, "  params: {units: 3}\n  label_smoothing: 0.1\n  class_weights: {'3': 2}\n")
    (warning,) = load("mine.yaml").warnings
    assert "trainer.label_smoothing, trainer.class_weights.3 have no effect: mynet:net" in warning
    declare(WHOLE.replace('"units"', '"class_weights"'), "  class_weights: {'3': 2}\n")
    assert load("mine.yaml").warnings == ()
    declare("def trainer_fn(fn_args, schema): pass\n", "  params: {units: 3}\n", "module_file: mynet.py")
    (warning,) = load("mine.yaml").warnings
    assert "trainer.params.units has no effect: a module file brings its own" in warning


def test_a_default_that_is_written_out_has_no_warning(declare, write, cli):
    declare(WHOLE, "  params: {units: 3}\n")
    assert load("mine.yaml").warnings == ()
    assert load(write(cli("show", "mine.yaml").out, "whole.yaml")).declaration == load("mine.yaml").declaration
    assert load("whole.yaml").warnings == ()
    (warning,) = load("whole.yaml", ["trainer.optimizer.clip_norm=2"]).warnings
    assert warning.endswith("trainer.optimizer.clip_norm has no effect: mynet:net does not read it from params")
