"""The user's modules that are named like one of this project's packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config import load
from pipeline.config.modules import PROJECT_PACKAGES, PROJECT_ROOT

pytestmark = pytest.mark.unit

MODEL = "model: model_fn.networks:mnist_cnn"
NAMES = sorted(PROJECT_PACKAGES)


@pytest.fixture
def put(tmp_path: Path):
    """Writes files beside the declaration."""

    def write_files(texts: dict[str, str]) -> None:
        for name, text in texts.items():
            file = tmp_path / f"{name}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)

    return write_files


def rename(name: str) -> str:
    return f"to do:    rename it: `{name}` is the name of one of tfx-estimator's own packages"


@pytest.mark.parametrize("name", NAMES)
def test_a_module_file_of_such_a_name_is_refused(refuse, put, good, name):
    put({name: "def run_fn(fn_args): pass\ndef preprocessing_fn(inputs): pass\n"})
    message = refuse(good.replace(MODEL, f"module_file: {name}.py"))
    assert "mine.yaml:6  trainer.module_file: " in message
    assert rename(name) in message
    message = refuse(good + f"transform: {{module_file: {name}.py}}\n")
    assert "mine.yaml:8  transform.module_file: " in message
    assert rename(name) in message


def test_a_module_file_in_a_package_of_such_a_name_is_fine(write, put, good):
    put({"data/taxi": "def run_fn(fn_args): pass\n"})
    write(good.replace(MODEL, "module_file: data/taxi.py"))
    assert load("mine.yaml").declaration.trainer.module_file.endswith("data/taxi.py")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("attribute", ["net", "a_slip"])
def test_a_model_in_a_module_of_such_a_name_is_refused(refuse, put, good, name, attribute):
    put({name: "def net(num_classes): pass\n"})
    message = refuse(good.replace("model_fn.networks:mnist_cnn", f"{name}:{attribute}"))
    assert f"mine.yaml:6  trainer.model: {name}:{attribute}" in message
    assert rename(name) in message
    assert "1 problem\n" in message


def test_a_function_in_a_package_of_such_a_name_is_refused(refuse, put, good):
    put({"model_fn/__init__": "", "model_fn/mine": "def net(num_classes): pass\n"})
    put({"data/__init__": "", "data/steps": "def preprocessing_fn(x): pass\nclass Builder: pass\n"})
    assert rename("model_fn") in refuse(good.replace("model_fn.networks:mnist_cnn", "model_fn.mine:net"))
    assert rename("data") in refuse(good + "transform: {preprocessing_fn: 'data.steps:preprocessing_fn'}\n")
    assert rename("data") in refuse(good.replace("dataset: mnist", "dataset: data.steps:Builder"))


IMPORTS = [
    "import data",
    "import data as d",
    "from data import load",
    "from data import *",
    "def late():\n    from data import load",
    "import importlib\nd = importlib.import_module('data')",
]


@pytest.mark.parametrize("line", IMPORTS)
def test_an_import_of_such_a_module_is_refused_from_a_model_and_from_a_module_file(refuse, put, good, line):
    text = "def net(num_classes): pass\ndef run_fn(fn_args): pass\n"
    put({"data": "def load(): pass\n", "mynet": f"{line}\n{text}", "taxi": f"import helper\n{text}", "helper": line})
    for trainer, file in (("model: mynet:net", "mynet.py"), ("model: taxi:net", "helper.py")):
        message = refuse(good.replace(MODEL, trainer))
        assert f"{file} imports `data`, which is named like" in message
        assert rename("data") in message
    for file in ("mynet.py", "taxi.py"):
        message = refuse(good.replace(MODEL, f"module_file: {file}"))
        assert "mine.yaml:6  trainer.module_file" in message
        assert rename("data") in message


def test_every_name_is_told_at_once(refuse, put, good):
    put({"data": "x = 1\n", "components": "y = 1\n"})
    put({"mynet": "import data\nfrom components import y\ndef net(num_classes): pass\n"})
    message = refuse(good.replace("model_fn.networks", "mynet").replace("mnist_cnn", "net"))
    assert "2 problems" in message
    assert rename("data") in message
    assert rename("components") in message


def test_such_modules_that_are_not_imported_are_fine(write, put, good):
    wrong = "raise RuntimeError('the wrong module')\n"
    put(dict.fromkeys(NAMES, wrong))
    write(good)
    assert load("mine.yaml")
    both = "import model_fn.networks\nfrom model_fn.networks import mnist_cnn as net\nfrom data import preprocessing\n"
    put({"mynet": both, "taxi": "from model_fn import networks\ndef run_fn(fn_args): pass\n"})
    write(good.replace("model_fn.networks:mnist_cnn", "mynet:net"))
    assert load("mine.yaml")
    write(good.replace(MODEL, "module_file: taxi.py"))
    assert load("mine.yaml")


def test_a_folder_of_data_and_modules_inside_a_package_are_fine(write, put, good, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "images.bin").write_bytes(b"")
    imports = "from . import data\nfrom .data import load\nimport nets.data\n"
    put({"nets/__init__": "", "nets/data": "def load(): pass\n"})
    put({"nets/small": imports + "def net(num_classes): pass\n"})
    write(good.replace("model_fn.networks:mnist_cnn", "nets.small:net"))
    assert load("mine.yaml")


def test_this_projects_own_folder_is_no_users_folder(monkeypatch):
    monkeypatch.chdir(PROJECT_ROOT)
    for model in ("model_fn.networks:mnist_cnn", "model_fn.classifier:make_model_fn"):
        assert load("digits", [f"trainer.model={model}"])
