"""The function that `trainer.model` names: told from a model_fn by its text."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit

OURS = "model: mnist_cnn"
NETWORKS = [
    "def net(num_classes): pass",
    "def net(num_classes, width=3, *, depth=2): pass",
    "def net(classes, /): pass",
    "def net(*sizes): pass",
    "if True:\n    def net(num_classes): pass",
    "def net(features, num_classes): pass",
    "def net(): pass",
    "def net(*, num_classes): pass",
    "def net(**options): pass",
]
MODEL_FNS = [
    "def net(features, labels, mode, params): pass",
    "def net(features, labels): pass",
    "def net(*, labels, features): pass",
]
UNTOLD = [
    "from elsewhere import net",
    "from elsewhere import *",
    "import functools\nnet = functools.partial(print, 1)",
    "net = lambda: None",
    "class net: pass",
    "import functools\n@functools.cache\ndef net(): pass",
    "def net(): pass\ndef net(features, labels): pass",
    "def net(): pass\nnet = print",
]


@pytest.fixture
def declare(write, good):
    """Writes a module and a declaration whose model is `net` in it; returns the declaration's text."""

    def text(module: str, more: str = "") -> str:
        write(module + "\n", "mynet.py")
        declaration = good.replace(OURS, "model: mynet:net") + more
        write(declaration)
        return declaration

    return text


@pytest.mark.parametrize("module", NETWORKS)
def test_a_network_function_passes_with_probabilities_alone(declare, refuse, module):
    declare(module)
    assert load("mine.yaml").declaration.trainer.model == "mynet:net"
    for key, reason in {
        "logits": "`logits` gives no right accuracy and loss",
        "class_ids": "`class_ids` gives no right accuracy and loss",
        "scores": "there is no output `scores`",
    }.items():
        message = refuse(declare(module, f"evaluator: {{prediction_key: {key}}}\n"))
        assert f"mine.yaml:8  evaluator.prediction_key: {key}" in message
        assert f"{reason}: a network function's model puts out probabilities, logits, class_ids, classes" in message
        assert "remove it, or write probabilities" in message
        assert "1 problem\n" in message


@pytest.mark.parametrize("module", [*MODEL_FNS, *UNTOLD])
def test_a_model_fn_and_what_the_text_cannot_tell_may_have_any_output(declare, module):
    declare(module, "evaluator: {prediction_key: scores}\n")
    assert load("mine.yaml").declaration.evaluator.prediction_key == "scores"


@pytest.mark.parametrize(
    ("module", "params", "named"),
    [
        ("def net(num_classes, units=3): pass", "{unit: 5}", ["takes no `unit`", "did you mean `units`?"]),
        ("def net(num_classes, *, units=3): pass", "{a: 1}", ["takes no `a`", "its arguments: num_classes, units"]),
        ("def net(num_classes, /, units=3): pass", "{num_classes: 2}", ["takes no `num_classes`", "arguments: units"]),
        ("def net(): pass", "{a: 1}", ["takes no `a`", "its arguments: none", "remove it, or add it to"]),
    ],
)
def test_a_network_is_given_what_it_takes(declare, refuse, module, params, named):
    message = refuse(declare(module, f"  params: {params}\n"))
    assert "mine.yaml:8  trainer.params." in message
    assert all(part in message for part in named)
    assert "1 problem\n" in message


@pytest.mark.parametrize(
    "module",
    [
        "def net(num_classes, units, depth): pass",
        "def net(units, *, depth): pass",
        "def net(num_classes, **options): pass",
        *MODEL_FNS,
        *UNTOLD,
    ],
)
def test_what_takes_them_or_may_is_given_all(declare, module):
    declare(module, "  params: {units: 5, depth: 2}\n")
    assert load("mine.yaml").declaration.trainer.params == {"units": 5, "depth": 2}


@pytest.mark.parametrize("path", ["keras", "keras_custom_loop"])
def test_a_module_file_takes_no_path(refuse, write, good, path):
    write("def run_fn(fn_args): pass\n", "taxi.py")
    message = refuse(good.replace(OURS, "module_file: taxi.py"), [f"trainer.path={path}"])
    assert f"trainer.path: {path}" in message
    assert "a module file brings its own way of training" in message
    assert "remove trainer.path, or name the network by trainer.model" in message
    assert "1 problem\n" in message


def test_a_module_file_may_have_any_output(write, good):
    write("def run_fn(fn_args): pass\n", "taxi.py")
    write(good.replace(OURS, "module_file: taxi.py") + "evaluator: {prediction_key: scores}\n")
    assert load("mine.yaml").declaration.evaluator.prediction_key == "scores"


def test_the_shipped_networks_are_told_too(refuse, good):
    assert "`logits` gives no right accuracy" in refuse(good, ["evaluator.prediction_key=logits"])


@pytest.mark.parametrize("path", ["keras", "keras_custom_loop"])
def test_a_model_fn_is_for_an_estimator(declare, refuse, path):
    for module in MODEL_FNS:
        message = refuse(declare(module), [f"trainer.path={path}"])
        assert "mynet:net is a whole Estimator model_fn" in message
        assert "set trainer.path: estimator; or name the function that makes the network" in message
    for module in (*NETWORKS, *UNTOLD):
        declare(module)
        assert load("mine.yaml", [f"trainer.path={path}"]).declaration.trainer.path == path


def test_a_model_that_is_wrong_itself_says_nothing_of_the_evaluator(refuse, good):
    message = refuse(good.replace(OURS, "model: 5") + "evaluator: {prediction_key: logits}\n")
    assert "1 problem\n" in message
    both = good.replace(OURS, f"{OURS}\n  module_file: 5") + "evaluator: {prediction_key: logits}\n"
    assert "1 problem\n" in refuse(both)
