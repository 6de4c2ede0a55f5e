"""TFX's own taxi template, with this Trainer in the place of TFX's, from a wheel.

The template is TFX's, copied by TFX's command line; a `pipeline/`, a `models/` and a `data/` are in it. What is edited
is what TFX's tutorial has its readers edit, and what the Trainer is called with.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

# What the tutorial uncomments, step by step.
STEPS = ["statistics_gen", "schema_gen", "transform", "trainer", "model_resolver", "evaluator", "pusher"]
IMPORT = ("from tfx import v1 as tfx\n", "from tfx import v1 as tfx\nfrom tfx_estimator import Trainer\n")
TRAINER = "    trainer = tfx.components.Trainer(**trainer_args)"
RUN_FN = {
    "pipeline/pipeline.py": [IMPORT, (TRAINER, "    trainer = Trainer(**trainer_args)")],
    "pipeline/configs.py": [("TRAIN_NUM_STEPS = 1000", "TRAIN_NUM_STEPS = 200")],
}
DISTRIBUTED = """    trainer = Trainer(
        **trainer_args,
        distribution={
            'train': {'strategy': 'multi_worker_mirrored', 'workers': 2},
            'evaluator': True,
        })"""
METRICS = """metrics=[
              tfma.MetricConfig(
                  class_name='BinaryAccuracy',
                  threshold=tfma.MetricThreshold(
                      value_threshold=tfma.GenericValueThreshold(
                          lower_bound={'value': eval_accuracy_threshold}),
                      change_threshold=tfma.GenericChangeThreshold(
                          direction=tfma.MetricDirection.HIGHER_IS_BETTER,
                          absolute={'value': -1e-10})))
          ]"""
# An EvalSavedModel has its metrics in its graph.
IN_GRAPH = """thresholds={
              'accuracy':
                  tfma.MetricThreshold(
                      value_threshold=tfma.GenericValueThreshold(
                          lower_bound={'value': eval_accuracy_threshold}))
          }"""
TRAINER_FN = {
    "pipeline/pipeline.py": [
        IMPORT,
        (TRAINER, DISTRIBUTED),
        ("'run_fn': run_fn", "'trainer_fn': run_fn"),
        ("signature_name='serving_default'", "signature_name='eval'"),
        ("              label_key='tips_xf',\n", ""),
        ("              preprocessing_function_names=['transform_features']", ""),
        (METRICS, IN_GRAPH),
    ],
    "pipeline/configs.py": [
        ("TRAIN_NUM_STEPS = 1000", "TRAIN_NUM_STEPS = 200"),
        ("models.keras_model.model.run_fn", "models.estimator_model.model._create_train_and_eval_spec"),
    ],
}
long = pytest.mark.long


@pytest.fixture(scope="module")
def template(environment, tmp_path_factory):
    """The template, as TFX's command line copies it."""
    folder = tmp_path_factory.mktemp("template") / "taxi"
    command = ("tfx", "template", "copy", "--model", "taxi", "--pipeline_name", "taxi")
    environment.run(*command, "--destination_path", str(folder), cwd=folder.parent)
    return folder


def edit(folder: Path, edits: dict[str, list[tuple[str, str]]]) -> None:
    """Replaces texts in files of the template."""
    for name, pairs in edits.items():
        text = (folder / name).read_text()
        for old, new in pairs:
            assert old in text, f"the template's {name} has no {old!r}"
            text = text.replace(old, new, 1)
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("edits", "by_tfx"),
    [
        pytest.param(RUN_FN, False, id="run_fn-local_runner", marks=long),
        pytest.param(RUN_FN, True, id="run_fn-tfx", marks=long),
        pytest.param(TRAINER_FN, False, id="estimator-local_runner", marks=long),
        pytest.param(TRAINER_FN, True, id="estimator-tfx"),
    ],
)
def test_the_template_pushes_a_model(environment, template, tmp_path, edits, by_tfx):
    folder = shutil.copytree(template, tmp_path / "taxi")
    edit(folder, edits)
    edit(folder, {"pipeline/pipeline.py": [(f"# components.append({c})", f"components.append({c})") for c in STEPS]})
    if by_tfx:
        # What TFX remembers of pipelines of the same name.
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
    assert tasks >= ({"chief-0", "worker-0", "evaluator-0"} if edits is TRAINER_FN else {"chief-0"})
