"""TFX's own taxi template, with this Trainer in the place of TFX's, from a wheel.

The template is TFX's, copied by TFX's command line; a `pipeline/`, a `models/` and a `data/` are in it. What is edited
is what TFX's tutorial has its readers edit, and what the Trainer is called with.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

STEPS = ["StatisticsGen", "SchemaGen", "Transform", "Trainer", "Resolver", "Evaluator", "Pusher"]
COMPONENTS = ["statistics_gen", "schema_gen", "transform", "trainer", "model_resolver", "evaluator", "pusher"]
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
# An EvalSavedModel has its metrics in its graph.
METRICS = """          tfma.MetricsSpec(thresholds={
              'accuracy':
                  tfma.MetricThreshold(
                      value_threshold=tfma.GenericValueThreshold(
                          lower_bound={'value': eval_accuracy_threshold}))
          })
      ])
  evaluator ="""
TRAINER_FN = {
    "pipeline/pipeline.py": [
        IMPORT,
        (TRAINER, DISTRIBUTED),
        ("'run_fn': run_fn", "'trainer_fn': run_fn"),
        ("signature_name='serving_default'", "signature_name='eval'"),
        ("              label_key='tips_xf',\n", ""),
        ("              preprocessing_function_names=['transform_features']", ""),
    ],
    "pipeline/configs.py": [
        ("TRAIN_NUM_STEPS = 1000", "TRAIN_NUM_STEPS = 200"),
        ("models.keras_model.model.run_fn", "models.estimator_model.model._create_train_and_eval_spec"),
    ],
}
long = pytest.mark.long


@pytest.fixture
def taxi(environment, tmp_path):
    """A function that makes the edited template, and returns its folder."""

    def make(edits: dict[str, list[tuple[str, str]]]) -> Path:
        folder = tmp_path / "taxi"
        environment.run(
            *("tfx", "template", "copy", "--model", "taxi", "--pipeline_name", "taxi"),
            *("--destination_path", str(folder)),
            cwd=tmp_path,
        )
        uncommented = [(f"  # components.append({name})", f"  components.append({name})") for name in COMPONENTS]
        for name, pairs in {**edits, "pipeline/pipeline.py": [*edits["pipeline/pipeline.py"], *uncommented]}.items():
            text = (folder / name).read_text()
            for old, new in pairs:
                assert old in text, f"the template's {name} has no {old!r}"
                text = text.replace(old, new, 1)
            if edits is TRAINER_FN and name == "pipeline/pipeline.py":
                begin, end = text.index("          tfma.MetricsSpec("), text.index("  evaluator =")
                text = text[:begin] + METRICS + text[end + len("  evaluator =") :]
            (folder / name).write_text(text)
        return folder

    return make


@pytest.mark.parametrize(
    ("edits", "by_tfx"),
    [
        pytest.param(RUN_FN, False, id="run_fn-local_runner"),
        pytest.param(RUN_FN, True, id="run_fn-tfx", marks=long),
        pytest.param(TRAINER_FN, False, id="estimator-local_runner", marks=long),
        pytest.param(TRAINER_FN, True, id="estimator-tfx"),
    ],
)
def test_the_template_pushes_a_model(environment, taxi, edits, by_tfx):
    folder = taxi(edits)
    if by_tfx:
        tfx = ("tfx", "pipeline", "create", "--engine", "local", "--pipeline_path", "local_runner.py")
        said = environment.run(*tfx, cwd=folder)
        assert 'Pipeline "taxi" created successfully' in said
        environment.run(*("tfx", "run", "create", "--engine", "local", "--pipeline_name", "taxi"), cwd=folder)
    else:
        environment.run("python", "local_runner.py", cwd=folder)
    root = folder / "tfx_pipeline_output" / "taxi"
    (pushed,) = (root / "serving_model").iterdir()
    assert (pushed / "saved_model.pb").is_file()
    (run,) = (root / "Trainer" / "model_run").iterdir()
    tasks = sorted(log.name for log in run.glob("logs/**/*.log"))
    print(tasks, sorted(p.name for p in run.iterdir()))
