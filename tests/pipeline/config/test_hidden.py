"""Modules of the user's that would hide Python's own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.hidden_checks import NEEDED, PACKAGES

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", ["types.py", "random.py", "json/__init__.py"])
def test_a_module_that_no_python_could_start_beside_is_refused(problems, tmp_path, good, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("def net(num_classes):\n    return 1\n")
    [problem] = problems(good)
    module = name.partition("/")[0].removesuffix(".py")
    assert problem.startswith(
        f"mine.yaml:1  \n{tmp_path / name} hides Python's own module `{module}`".replace("  \n", "\n")
    )
    assert problems(good.replace("mnist_cnn", f"{module}:net")) == [problem]


@pytest.mark.parametrize("name", ["numpy.py", "tensorflow.py", "google/__init__.py"])
def test_so_is_one_that_hides_an_installed_package(problems, tmp_path, good, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    [problem] = problems(good)
    assert f"{tmp_path / name} hides the installed package `{name.partition('/')[0].removesuffix('.py')}`" in problem


def test_modules_that_hide_nothing_are_taken(write, tmp_path, good):
    for name in ("sched", "trace", "types_of_mine"):
        (tmp_path / f"{name}.py").write_text("def net(num_classes):\n    return 1\n")
    # Without __init__.py; and no module.
    (tmp_path / "types").mkdir()
    (tmp_path / "random.txt").write_text("")
    write(good.replace("mnist_cnn", "sched:net"))
    assert load("mine.yaml").declaration.trainer.model == "sched:net"


def test_all_that_a_task_imports_at_its_start_is_known():
    code = (
        "import sys, tensorflow, tfx_estimator.components.trainer.task.start\n"
        "print(*({name.partition('.')[0] for name in sys.modules} & sys.stdlib_module_names))"
    )
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    public = {name for name in loaded if not name.startswith("_")}
    # What is built into Python cannot be hidden.
    assert public - set(sys.builtin_module_names) <= NEEDED
    assert sys.stdlib_module_names >= NEEDED


def test_the_packages_that_may_not_be_hidden_are_imported_by_a_task():
    code = (
        "import sys, tfx_estimator.pipeline.build, tfx.orchestration.local.local_dag_runner\n"
        "from tfx_estimator.components.trainer.estimator import path\n"
        "from tfx_estimator.components.trainer.keras import path\n"
        "import rich.console, tensorflow_datasets, tensorflow_hub\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) >= PACKAGES
