"""Which source code keys the Trainer: all that decides a model, and nothing else."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from tests.root import ROOT
from tfx_estimator.components.trainer.settings import ESTIMATOR, KERAS, KERAS_LOOP, RUN_FN
from tfx_estimator.components.trainer.source import deciding_code, declared_code
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.user_source import fingerprint, modules
from tfx_estimator.pipeline.user_source.fingerprint import collect_sources, fingerprint_source

pytestmark = pytest.mark.unit

TRAINER = "tfx_estimator.components.trainer"
# What a training process runs of this project: beside its entry, what that loads by name.
ENTRIES = (
    f"{TRAINER}.task.start",
    f"{TRAINER}.estimator.path",
    f"{TRAINER}.estimator.trainer_fn",
    f"{TRAINER}.keras.path",
    f"{TRAINER}.run_fn.path",
)
ROOMS = (f"{TRAINER}.estimator", f"{TRAINER}.keras", f"{TRAINER}.run_fn", f"{TRAINER}.user_input")
# What of it watches training, starts it, or refuses it: see each module's first line. A change of these makes no other
# model, and must not retrain one.
OPERATIONAL = {
    "tfx_estimator.components",
    "tfx_estimator.components.files",
    "tfx_estimator.components.execution",
    TRAINER,
    f"{TRAINER}.best",
    f"{TRAINER}.damage",
    f"{TRAINER}.estimator",
    f"{TRAINER}.estimator.checkpoints",
    f"{TRAINER}.estimator.hooks",
    f"{TRAINER}.estimator.batch_counter",
    f"{TRAINER}.patch",
    f"{TRAINER}.estimator.recorded_params",
    f"{TRAINER}.job",
    f"{TRAINER}.keras",
    f"{TRAINER}.keras.curves",
    f"{TRAINER}.measuring",
    f"{TRAINER}.module_text",
    f"{TRAINER}.observers",
    f"{TRAINER}.run_fn",
    f"{TRAINER}.settings",
    f"{TRAINER}.user_input",
    f"{TRAINER}.user_input.input_check",
}
OPERATIONAL_ROOMS = tuple(
    f"{TRAINER}.{room}." for room in ("cluster", "dry_run", "profiling", "protocol", "replica_check", "supervisor")
)
OPERATIONAL_TASK = {
    f"{TRAINER}.task.{name}" for name in ("context", "light_imports", "paths", "runtime", "start", "user_code")
}


@pytest.fixture(scope="module")
def graph():
    """Import-linter's own graph of this project, without the processes that train what nobody keeps."""
    import grimp

    graph = grimp.build_graph("tfx_estimator")
    for name in {f"{TRAINER}.dry_run", *graph.find_descendants(f"{TRAINER}.dry_run")}:
        graph.remove_module(name)
    return graph


@pytest.fixture(scope="module")
def imported(graph) -> set[str]:
    """All of this project that a training process imports."""
    found = set(ENTRIES)
    for entry in ENTRIES:
        found |= graph.find_upstream_modules(entry)
    for room in ROOMS:
        found |= graph.find_descendants(room)
    return {name for name in found if not name.startswith("tfx_estimator.pipeline")}


def test_every_module_that_training_imports_is_in_the_key_or_decides_nothing(imported):
    own = [*deciding_code("", built_in=True), *deciding_code(KERAS)]
    covered = set(collect_sources([*own, "tfx_estimator.model_fn.networks:mnist_cnn"]))
    open_ones = {
        name
        for name in imported - covered - OPERATIONAL - OPERATIONAL_TASK
        if not name.startswith(OPERATIONAL_ROOMS) and f"{name}." not in OPERATIONAL_ROOMS
    }
    # The package's own __init__ and the names of rooms hold no code.
    open_ones -= {"tfx_estimator", f"{TRAINER}.task"}
    assert not open_ones, "list each in components/trainer/source.py, or here if it decides nothing of a model"
    assert not covered & (OPERATIONAL | OPERATIONAL_TASK)
    assert {"tfx_estimator.model_fn.step.classifier", "tfx_estimator.data.input_fn", f"{TRAINER}.export"} <= covered
    assert len(imported) > 50


def changes_settings(name: str) -> bool:
    """Whether a function of the module takes the Trainer's settings, and returns others."""
    module = modules.find_module(name)
    assert module is not None
    assert module.file is not None
    for each in ast.walk(ast.parse(module.file.read_text())):
        if isinstance(each, ast.FunctionDef) and each.returns:
            taken = [ast.unparse(given.annotation) for given in each.args.args if given.annotation]
            if "Settings" in taken and "Settings" in ast.unparse(each.returns):
                return True
    return False


def test_what_changes_the_settings_before_the_training_process_is_in_the_key(graph):
    before = {name for name in graph.find_upstream_modules(f"{TRAINER}.executor") if name.startswith(f"{TRAINER}.")}
    changing = {name for name in before if changes_settings(name)}
    assert f"{TRAINER}.settling" in changing
    covered = set(collect_sources(declared_code(TrainerSection(model="mnist_cnn"))))
    left = {name for name in changing - covered if not name.startswith(OPERATIONAL_ROOMS)}
    # What the first returns is itself in the key, as it is called when a pipeline is made; the second says where
    # training folders lie.
    left -= {f"{TRAINER}.arguments", f"{TRAINER}.training_root"}
    assert not left, "list each in components/trainer/source.py, or here if it decides nothing of a model"


@pytest.mark.parametrize("section", [{"model": "mnist_cnn"}, {"model": "mnist_cnn", "path": KERAS}], ids=str)
def test_another_formula_of_balanced_weights_is_no_cached_model(project, section):
    def fingerprint_of_declared() -> str:
        return fingerprint_source(declared_code(TrainerSection.parse_obj(section)))

    before, file = fingerprint_of_declared(), project / "components" / "trainer" / "settling.py"
    text = file.read_text()
    assert "share / counts[label]" in text
    file.write_text(text.replace("share / counts[label]", "(share / counts[label]) ** 0.5"))
    assert fingerprint_of_declared() != before


@pytest.mark.parametrize("path", ["", ESTIMATOR, KERAS, KERAS_LOOP, RUN_FN])
def test_every_listed_module_is_there(path):
    for name in deciding_code(path, built_in=True):
        assert modules.find_module(name), name


@pytest.fixture
def project(tmp_path: Path, monkeypatch) -> Path:
    """A copy of this project's sources, found in place of it."""
    home = tmp_path / "src" / "tfx_estimator"
    for folder in ("components", "data", "model_fn", "pipeline"):
        shutil.copytree(ROOT / folder, home / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (home / "__init__.py").write_text("")
    for module in (fingerprint, modules):
        monkeypatch.setattr(module, "package_parent", lambda: tmp_path / "src", raising=False)
    return home


def key() -> str:
    return fingerprint_source([*deciding_code(ESTIMATOR, built_in=True), "tfx_estimator.model_fn.networks:mnist_cnn"])


@pytest.mark.parametrize(
    "name",
    [
        "components/trainer/estimator/path.py",
        "components/trainer/estimator/evaluation.py",
        "components/trainer/estimator/trainer_fn.py",
        "components/trainer/estimator/patches.py",
        "components/trainer/user_input/rows.py",
        "data/sharding.py",
        "model_fn/step/classifier.py",
        "model_fn/parallel/strategies.py",
    ],
)
def test_a_change_of_what_decides_the_model_retrains_and_another_wording_does_not(project, name):
    before = key()
    file = project / name
    text = file.read_text()
    first = text.index('"""', 3)
    file.write_text(f'"""Other words.\n{text[first:]}\n# A comment.\n\n\n')
    assert key() == before
    file.write_text(f"{text}\n_X = 1\n")
    assert key() != before


@pytest.mark.parametrize(
    "name",
    [
        "components/trainer/cluster/private_network.py",
        "components/trainer/supervisor/supervisor.py",
        "components/trainer/estimator/hooks.py",
        "components/trainer/component.py",
        "data/sources/cifar.py",
        "pipeline/base/errors.py",
    ],
)
def test_a_change_of_what_does_not_decide_the_model_keeps_the_key(project, name):
    before = key()
    with open(project / name, "a") as file:
        file.write("\n_X = 1\n")
    assert key() == before


def test_another_path_is_keyed_by_its_own_code():
    estimator, run_fn, keras = (set(collect_sources(deciding_code(path))) for path in (ESTIMATOR, RUN_FN, KERAS))
    assert f"{TRAINER}.keras.path" in keras - estimator - run_fn
    assert f"{TRAINER}.run_fn.path" in run_fn - estimator
    assert f"{TRAINER}.estimator.path" in estimator - run_fn
    assert "tfx_estimator.model_fn.step.classifier" not in estimator | run_fn
    assert set(collect_sources(deciding_code(""))) == estimator | run_fn
