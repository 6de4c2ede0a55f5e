"""The source code in the Trainer's cache key: everything that determines a model, and nothing else."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.root import ROOT
from tfx_estimator.components.trainer.settings import ESTIMATOR, KERAS, KERAS_LOOP, RUN_FN
from tfx_estimator.components.trainer.source import deciding_code, declared_code
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.user_source import fingerprint, modules
from tfx_estimator.pipeline.user_source.fingerprint import collect_sources, fingerprint_source

TRAINER = "tfx_estimator.components.trainer"
# This project's modules in a training process: its entry, and those loaded by name.
ENTRIES = (
    f"{TRAINER}.task.start",
    f"{TRAINER}.estimator.path",
    f"{TRAINER}.estimator.trainer_fn",
    f"{TRAINER}.keras.path",
    f"{TRAINER}.run_fn",
)
ROOMS = (f"{TRAINER}.estimator", f"{TRAINER}.keras", f"{TRAINER}.user_input")
# What of it watches training, starts it, or refuses it: see each module's first line. A change of these makes no other
# model, and must not retrain one.
OPERATIONAL = {
    "tfx_estimator.components",
    *(f"tfx_estimator.components.{name}" for name in ("execution", "files", "read_files", "records", "served_outputs")),
    "tfx_estimator.data.sources.files",
    "tfx_estimator.model_fn.bridge.written",
    TRAINER,
    *(
        f"{TRAINER}.{name}"
        for name in ("best", "checkpoint", "job", "measuring", "observers", "patch", "settings", "tensorboard")
    ),
    *(f"{TRAINER}.estimator{name}" for name in ("", ".checkpoints", ".hooks", ".recorded_params")),
    *(f"{TRAINER}.{name}" for name in ("keras", "keras.curves", "user_input", "user_input.input_check")),
}
OPERATIONAL_ROOMS = tuple(
    f"{TRAINER}.{room}." for room in ("cluster", "dry_run", "profiling", "protocol", "replica_check", "supervisor")
)
OPERATIONAL_TASK = {f"{TRAINER}.task.{name}" for name in ("light_imports", "paths", "runtime", "start")}


@pytest.fixture(scope="module")
def graph():
    """Import-linter's graph of this project, without processes whose trainings are discarded."""
    import grimp

    graph = grimp.build_graph("tfx_estimator")
    for name in {f"{TRAINER}.dry_run", *graph.find_descendants(f"{TRAINER}.dry_run")}:
        graph.remove_module(name)
    return graph


@pytest.fixture(scope="module")
def imported(graph) -> set[str]:
    """All modules of this project that a training process imports."""
    found = set(ENTRIES)
    for entry in ENTRIES:
        found |= graph.find_upstream_modules(entry)
    for room in ROOMS:
        found |= graph.find_descendants(room)
    return {name for name in found if not name.startswith("tfx_estimator.pipeline")}


def test_every_module_that_training_imports_is_in_the_key_or_irrelevant(imported):
    own = [*deciding_code("", built_in=True), *deciding_code(KERAS)]
    covered = set(collect_sources([*own, "tfx_estimator.model_fn.networks:mnist_cnn"]))
    open_ones = {
        name
        for name in imported - covered - OPERATIONAL - OPERATIONAL_TASK
        if not name.startswith(OPERATIONAL_ROOMS) and f"{name}." not in OPERATIONAL_ROOMS
    }
    # The packages' __init__ files hold no code.
    open_ones -= {"tfx_estimator", f"{TRAINER}.task"}
    assert not open_ones, "list each in components/trainer/source.py, or here if it decides nothing of a model"
    assert not covered & (OPERATIONAL | OPERATIONAL_TASK)
    assert {"tfx_estimator.model_fn.step.classifier", "tfx_estimator.data.input_fn", f"{TRAINER}.export"} <= covered
    assert len(imported) > 50


def changes_settings(name: str) -> bool:
    """True if a function of the module takes the Trainer's settings and returns changed ones."""
    module = modules.find_module(name)
    for each in ast.walk(ast.parse(module.file.read_text())):
        if isinstance(each, ast.FunctionDef) and each.returns:
            taken = [ast.unparse(given.annotation) for given in each.args.args if given.annotation]
            if "Settings" in taken and "Settings" in ast.unparse(each.returns):
                return True
    return False


def test_code_that_changes_the_settings_before_training_is_in_the_key(graph):
    before = {name for name in graph.find_upstream_modules(f"{TRAINER}.executor") if name.startswith(f"{TRAINER}.")}
    changing = {name for name in before if changes_settings(name)}
    assert f"{TRAINER}.settling" in changing
    covered = set(collect_sources(declared_code(TrainerSection(model="mnist_cnn"))))
    left = {name for name in changing - covered if not name.startswith(OPERATIONAL_ROOMS)}
    # Its result is in the key itself, since it is called when a pipeline is built.
    left -= {f"{TRAINER}.arguments"}
    assert not left, "list each in components/trainer/source.py, or here if it decides nothing of a model"


@pytest.mark.parametrize("path", ["", ESTIMATOR, KERAS, KERAS_LOOP, RUN_FN])
def test_every_listed_module_exists(path):
    for name in deciding_code(path, built_in=True):
        assert modules.find_module(name), name


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Iterator[Path]:
    """A copy of this project's sources that is imported instead."""
    home = tmp_path_factory.mktemp("project") / "tfx_estimator"
    for folder in ("components", "data", "model_fn", "pipeline"):
        shutil.copytree(ROOT / folder, home / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (home / "__init__.py").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        for module in (fingerprint, modules):
            patch.setattr(module, "package_parent", lambda: home.parent, raising=False)
        yield home


@pytest.fixture(scope="module")
def is_other(project):
    """Returns whether a changed file changes the key."""

    def key(path: str) -> str:
        return fingerprint_source(declared_code(TrainerSection(model="mnist_cnn", path=path)))

    keys = {path: key(path) for path in (ESTIMATOR, KERAS)}

    def look(name: str, other: Callable[[str], str], path: str) -> bool:
        file = project / name
        text = file.read_text()
        file.write_text(other(text))
        try:
            return key(path) != keys[path]
        finally:
            file.write_text(text)

    return look


def reworded(text: str) -> str:
    end = text.index('"""', 3)
    return f'"""Other words.\n{text[end:]}\n# A comment.\n\n\n'


def extended(text: str) -> str:
    return f"{text}\n_X = 1\n"


def rerated(text: str) -> str:
    assert "share / counts[label]" in text
    return text.replace("share / counts[label]", "(share / counts[label]) ** 0.5")


@pytest.mark.parametrize(
    ("name", "other", "path", "counts"),
    [
        ("components/trainer/settling.py", rerated, ESTIMATOR, True),
        ("components/trainer/settling.py", rerated, KERAS, True),
        ("components/trainer/estimator/path.py", extended, ESTIMATOR, True),
        ("components/trainer/estimator/path.py", reworded, ESTIMATOR, False),
        ("components/trainer/estimator/evaluation.py", extended, ESTIMATOR, True),
        ("components/trainer/estimator/trainer_fn.py", extended, ESTIMATOR, True),
        ("components/trainer/estimator/patches.py", extended, ESTIMATOR, True),
        ("components/trainer/user_input/rows.py", extended, ESTIMATOR, True),
        ("data/sharding.py", extended, ESTIMATOR, True),
        ("model_fn/step/classifier.py", extended, ESTIMATOR, True),
        ("model_fn/parallel/strategies.py", extended, ESTIMATOR, True),
        ("components/trainer/cluster/private_network.py", extended, ESTIMATOR, False),
        ("components/trainer/supervisor/supervisor.py", extended, ESTIMATOR, False),
        ("components/trainer/estimator/hooks.py", extended, ESTIMATOR, False),
        ("components/trainer/component.py", extended, ESTIMATOR, False),
        ("data/sources/cifar.py", extended, ESTIMATOR, False),
        ("pipeline/base/errors.py", extended, ESTIMATOR, False),
    ],
)
def test_only_a_change_that_affects_the_model_retrains(is_other, name, other, path, counts):
    assert is_other(name, other, path) is counts


def test_each_path_is_keyed_by_its_own_code():
    estimator, run_fn, keras = (set(collect_sources(deciding_code(path))) for path in (ESTIMATOR, RUN_FN, KERAS))
    assert f"{TRAINER}.keras.path" in keras - estimator - run_fn
    assert f"{TRAINER}.run_fn" in run_fn - estimator
    assert f"{TRAINER}.estimator.path" in estimator - run_fn
    assert "tfx_estimator.model_fn.step.classifier" not in estimator | run_fn
    assert set(collect_sources(deciding_code(""))) == estimator | run_fn
