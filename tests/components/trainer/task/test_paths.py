"""The registry of paths: each is complete, and the supervisor's part needs no TensorFlow."""

from __future__ import annotations

import json
import zipfile

import pytest

from tests.root import run_python
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.task import paths
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.distribution import Distribution

MWMS = {"train": {"strategy": "multi_worker_mirrored"}}
SERVED = {"train": {"strategy": "parameter_server"}}


@pytest.mark.parametrize("name", [paths.ESTIMATOR, paths.KERAS, paths.KERAS_LOOP, paths.RUN_FN])
def test_every_path_is_complete(name, tmp_path):
    job = Job("{}", "{}", {}, str(tmp_path), path=name)
    assert callable(paths.path_of(job).run)
    assert paths.checkpoints_of(job).drop_damaged() is None
    assert paths.traits_of(job, Distribution()).exporter == "chief"


@pytest.mark.parametrize(
    ("name", "distribution", "exporter", "alone", "synchronous"),
    [
        ("estimator", MWMS, "exporter", {"evaluator"}, True),
        ("estimator", {**MWMS, "evaluator": True}, "evaluator", {"evaluator"}, True),
        ("estimator", SERVED, "exporter", {"evaluator", "worker", "ps"}, False),
        ("keras", MWMS, "exporter", {"evaluator"}, True),
        ("keras_custom_loop", {**MWMS, "evaluator": True}, "evaluator", {"evaluator"}, True),
        ("run_fn", MWMS, "chief", set(), True),
        ("run_fn", SERVED, "chief", {"worker", "ps"}, False),
    ],
)
def test_the_exporting_task_and_the_tasks_that_are_restarted_alone(name, distribution, exporter, alone, synchronous):
    traits = paths.traits_of(Job("{}", "{}", {}, "/t", path=name), Distribution.parse_obj(distribution))
    assert (traits.exporter, set(traits.alone), traits.synchronous) == (exporter, alone, synchronous)


def test_only_an_estimator_is_tried_under_replicas():
    assert [
        paths.traits_of(Job("{}", "{}", {}, "/t", path=name), Distribution()).needs_check
        for name in ("estimator", "run_fn")
    ] == [True, False]


def test_the_supervisor_imports_no_tensorflow():
    code = (
        "import sys\n"
        "from tfx_estimator.components.trainer.supervisor import group, process, failure, report, outcome\n"
        "print('tensorflow' in sys.modules)"
    )
    done = run_python("-c", code)
    assert done.stdout.strip() == "False", done.stderr


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("def run_fn(fn_args): pass\n", "run_fn"),
        ("def trainer_fn(fn_args, schema): pass\n", "estimator"),
        # TFX's own default.
        ("def trainer_fn(fn_args, schema): pass\ndef run_fn(fn_args): pass\n", "run_fn"),
        ("from constants import *\ndef trainer_fn(fn_args, schema): pass\n", "estimator"),
        ("from constants import *\ndef run_fn(fn_args): pass\n", "run_fn"),
        ("from mine import *\n", "run_fn"),
    ],
)
def test_the_functions_of_a_module_determine_the_path(tmp_path, text, name):
    (tmp_path / "mine.py").write_text(text)
    with zipfile.ZipFile(tmp_path / "mine-0.whl", "w") as wheel:
        wheel.write(tmp_path / "mine.py", "mine.py")
    for properties in ({"module_file": f"{tmp_path}/mine.py"}, {"module_path": f"mine@{tmp_path}/mine-0.whl"}):
        assert paths.name_of(properties, Settings()) == name
    assert paths.name_of({"trainer_fn": "a.b"}, Settings()) == "estimator"
    assert paths.name_of({"run_fn": "a.b"}, Settings()) == "run_fn"
    assert paths.name_of({"run_fn": "a.b"}, Settings(path="estimator")) == "estimator"


@pytest.mark.parametrize("path", ["estimator", "keras", "keras_custom_loop"])
def test_a_declared_path_is_used_whatever_function_represents_it(path):
    trainer = {"model": "mnist_cnn", "train_steps": 1, "path": path}
    declared = Declaration.parse_obj({"name": "d", "data": {"dataset": "digits"}, "trainer": trainer})
    # A comparison's contender has another path than the built pipeline.
    for made_with in ("", "estimator", "keras"):
        settings = Settings(declaration=json.loads(declared.to_json()), path=made_with)
        assert paths.name_of({"run_fn": "a.b"}, settings) == path
        assert paths.name_of({"trainer_fn": "a.b"}, settings) == path


@pytest.mark.parametrize(
    ("text", "error"), [("x = 1\n", "neither trainer_fn nor run_fn"), ("def (", "cannot be read"), (None, "cannot be")]
)
def test_a_module_without_them_is_refused(tmp_path, text, error):
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UserCodeError, match=error):
        paths.name_of({"module_file": f"{tmp_path}/mine.py"}, Settings())
