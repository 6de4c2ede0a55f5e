"""TFX's own taxi template, with this Trainer in place of TFX's, from a wheel.

TFX's command line copies the template, which has a `pipeline/`, a `models/` and a `data/`. Edited are the lines of
TFX's tutorial, and the Trainer's arguments.
"""

from __future__ import annotations

import shutil

import pytest

from tests.examples import copy_example
from tests.stack import needs_estimator_template

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

long = pytest.mark.long


@pytest.fixture(scope="module")
def template(environment, tmp_path_factory):
    folder = tmp_path_factory.mktemp("template") / "taxi"
    command = ("tfx", "template", "copy", "--model", "taxi", "--pipeline_name", "taxi")
    environment.run(*command, "--destination_path", str(folder), cwd=folder.parent)
    return folder


@pytest.mark.parametrize(
    ("options", "by_tfx"),
    [
        pytest.param([], False, id="run_fn-local_runner", marks=long),
        pytest.param([], True, id="run_fn-tfx", marks=long),
        pytest.param(["--estimator"], False, id="estimator-local_runner", marks=[long, needs_estimator_template]),
        # All of it: two minutes on two cores.
        pytest.param(["--estimator"], True, id="estimator-tfx", marks=[long, needs_estimator_template]),
    ],
)
def test_the_template_pushes_a_model(environment, template, tmp_path, options, by_tfx):
    folder = shutil.copytree(template, tmp_path / "taxi")
    script = copy_example("taxi-template", tmp_path) / "edit.py"
    environment.run("python", str(script), str(folder), *options, cwd=tmp_path)
    if by_tfx:
        # TFX's state of pipelines with the same name.
        home = {"LOCAL_HOME": str(tmp_path / "tfx")}
        create = ("tfx", "pipeline", "create", "--engine", "local", "--pipeline_path", "local_runner.py")
        assert 'Pipeline "taxi" created successfully' in environment.run(*create, cwd=folder, **home)
        run = ("tfx", "run", "create", "--engine", "local", "--pipeline_name", "taxi")
        environment.run(*run, cwd=folder, **home)
    else:
        environment.run("python", "local_runner.py", cwd=folder)
    root = folder / "tfx_pipeline_output" / "taxi"
    (pushed,) = (root / "serving_model").iterdir()
    assert (pushed / "saved_model.pb").is_file()
    tasks = {log.name.partition(".")[0] for log in (root / "Trainer").rglob("*.log")}
    assert tasks >= ({"chief-0", "worker-0", "evaluator-0"} if options else {"chief-0"})
