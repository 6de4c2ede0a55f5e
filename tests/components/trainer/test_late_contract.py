"""What the constructor could not know of the user's function is checked before anything is trained."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.distribution import Distribution

pytestmark = pytest.mark.unit

MIRRORED = {"train": {"strategy": "mirrored", "devices": {"cpu": 2}}}
WORKERS = {"train": {"strategy": "multi_worker_mirrored", "workers": 2}}
ESTIMATOR = """
import tensorflow as tf

def run_fn(fn_args):
    tf.estimator.train_and_evaluate(None, None, None)
"""


def execute(folder: Path, distribution: dict, warm_start: dict | None = None, **functions: str) -> None:
    from tfx.types import standard_artifacts

    from tfx_estimator.components.trainer.executor import Executor

    outputs = {"model": standard_artifacts.Model(), "model_run": standard_artifacts.ModelRun()}
    for name, artifact in outputs.items():
        artifact.uri = str(folder / name / "1")
    section = Distribution.parse_obj(distribution).dict()
    settings = Settings(distribution_section=section, warm_start_section=warm_start)
    properties = {"train_args": "{}", "eval_args": "{}", **settings.to_properties(), **functions}
    Executor().Do({}, {name: [artifact] for name, artifact in outputs.items()}, properties)


@pytest.mark.parametrize(
    ("text", "distribution", "told"),
    [
        ("from mykeras import *\n", {"eval": MIRRORED["train"]}, "a run_fn evaluates by itself"),
        (ESTIMATOR, WORKERS, "this run_fn trains an Estimator"),
    ],
)
def test_a_run_fn_that_is_found_late_is_not_given_what_it_cannot_have(tmp_path, text, distribution, told):
    (tmp_path / "mine.py").write_text(text)
    with zipfile.ZipFile(tmp_path / "mine-0.whl", "w") as wheel:
        wheel.write(tmp_path / "mine.py", "mine.py")
    # As TFX hands on a RuntimeParameter, and a module file that it packed.
    for functions in ({"module_file": f"{tmp_path}/mine.py"}, {"module_path": f"mine@{tmp_path}/mine-0.whl"}):
        with pytest.raises(DeclarationError, match=told):
            execute(tmp_path, distribution, **functions)
    assert not list(tmp_path.rglob("*.log"))


def test_so_is_one_that_is_named_late(tmp_path, monkeypatch):
    (tmp_path / "late_module.py").write_text(ESTIMATOR)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(DeclarationError, match="this run_fn trains an Estimator"):
        execute(tmp_path, WORKERS, run_fn="late_module.run_fn")
