"""What is declared for a model that does not take it."""

from __future__ import annotations

import pytest

from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit

OURS = "model: mnist_cnn"
WHOLE = 'def net(features, labels, mode, params):\n    return params["units"], params["optimizer"]["name"]\n'
MORE = "  params: {units: 3, depth: 2}\n  optimizer: {name: adam, learning_rate: 0.1}\n"


@pytest.fixture
def declare(write, good):
    """Writes a module and a declaration that names it."""

    def text(module: str, more: str = MORE, model: str = "model: mynet:net") -> None:
        write(module, "mynet.py")
        write(good.replace(OURS, f"{model}\n{more}".rstrip()))

    return text


def test_what_a_model_fn_does_not_take_is_told_at_once(declare, capsys):
    declare(WHOLE)
    (warning,) = load("mine.yaml").warnings
    assert warning.endswith(
        "trainer.params.depth, trainer.optimizer.learning_rate have no effect: mynet:net does not take them out of "
        "params"
    )
    assert warning.startswith("mine.yaml:")
    assert main(["validate", "mine.yaml"]) == 0
    assert f"    warning: {warning}\n" in capsys.readouterr().out
    assert main(["show", "mine.yaml"]) == 0
    said = capsys.readouterr()
    assert "warning" not in said.out
    assert warning in said.err


@pytest.mark.parametrize(
    "module",
    [
        "def net(num_classes, units, depth): pass\n",
        "def net(features, labels, mode, params):\n    build(params)\n",
        "from elsewhere import net\n",
    ],
)
def test_a_network_and_what_the_text_cannot_tell_are_passed(declare, module):
    declare(module)
    assert load("mine.yaml").warnings == ()


def test_defaults_and_presets_are_no_word_of_the_users(declare):
    declare(WHOLE, "")
    assert load("mine.yaml").warnings == ()
    assert load("mnist", ["trainer.model=mynet:net"]).warnings == ()
    (warning,) = load("mnist", ["trainer.model=mynet:net", "trainer.optimizer.momentum=0.05"]).warnings
    assert warning == "--set  trainer.optimizer.momentum has no effect: mynet:net does not take it out of params"


def test_options_of_the_loss_are_told_as_well(declare):
    declare(WHOLE, "  params: {units: 3}\n  label_smoothing: 0.1\n  class_weights: {'3': 2}\n")
    (warning,) = load("mine.yaml").warnings
    assert "trainer.label_smoothing, trainer.class_weights.3 have no effect: mynet:net" in warning
    declare(WHOLE.replace('"units"', '"class_weights"'), "  class_weights: {'3': 2}\n")
    assert load("mine.yaml").warnings == ()


def test_a_module_file_takes_neither(declare):
    declare("def trainer_fn(fn_args, schema): pass\n", "  params: {units: 3}\n", "module_file: mynet.py")
    (warning,) = load("mine.yaml").warnings
    assert "trainer.params.units has no effect: a module file brings its own" in warning


def test_a_default_that_is_written_out_is_nobodys_wish(declare, write, capsys):
    declare(WHOLE, "  params: {units: 3}\n")
    assert load("mine.yaml").warnings == ()
    assert main(["show", "mine.yaml"]) == 0
    write(capsys.readouterr().out, "whole.yaml")
    assert load("whole.yaml").declaration == load("mine.yaml").declaration
    assert load("whole.yaml").warnings == ()
    (warning,) = load("whole.yaml", ["trainer.optimizer.clip_norm=2"]).warnings
    assert warning.endswith("trainer.optimizer.clip_norm has no effect: mynet:net does not take it out of params")
