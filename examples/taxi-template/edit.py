"""Edits TFX's taxi template as TFX's tutorial does, with this project's Trainer in place of TFX's.

    python edit.py FOLDER [--estimator]

The template's modules stay unchanged. With --estimator its Estimator is trained, on two workers with an evaluator;
otherwise its Keras model.

Source: https://www.tensorflow.org/tfx/tutorials/tfx/template_local.
"""

import argparse
from pathlib import Path

# The lines that the tutorial uncomments, step by step.
COMPONENTS = ["statistics_gen", "schema_gen", "transform", "trainer", "model_resolver", "evaluator", "pusher"]
UNCOMMENTED = [(f"# components.append({name})", f"components.append({name})") for name in COMPONENTS]

IMPORT = ("from tfx import v1 as tfx\n", "from tfx import v1 as tfx\nfrom tfx_estimator import Trainer\n")
STEPS = ("TRAIN_NUM_STEPS = 1000", "TRAIN_NUM_STEPS = 200")
TRAINER = "    trainer = tfx.components.Trainer(**trainer_args)"
# Beam's default runner first starts a server in another language, for each component.
BEAM = (
    "      beam_pipeline_args=beam_pipeline_args,",
    "      beam_pipeline_args=beam_pipeline_args or ["
    "'--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner'],",
)
KERAS = {
    "pipeline/pipeline.py": [IMPORT, (TRAINER, "    trainer = Trainer(**trainer_args)"), BEAM, *UNCOMMENTED],
    "pipeline/configs.py": [STEPS],
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
ESTIMATOR = {
    "pipeline/pipeline.py": [
        IMPORT,
        (TRAINER, DISTRIBUTED),
        ("'run_fn': run_fn", "'trainer_fn': run_fn"),
        ("signature_name='serving_default'", "signature_name='eval'"),
        ("              label_key='tips_xf',\n", ""),
        ("              preprocessing_function_names=['transform_features']", ""),
        (METRICS, IN_GRAPH),
        BEAM,
        *UNCOMMENTED,
    ],
    "pipeline/configs.py": [
        STEPS,
        ("models.keras_model.model.run_fn", "models.estimator_model.model._create_train_and_eval_spec"),
    ],
}


def edit(folder, edits):
    """Replaces texts in files of the template; a missing text is an error."""
    for name, pairs in edits.items():
        text = (folder / name).read_text()
        for old, new in pairs:
            if old not in text:
                raise SystemExit(f"{folder / name} has no {old!r}: is it TFX 1.15's template, and not edited yet?")
            text = text.replace(old, new, 1)
        (folder / name).write_text(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--estimator", action="store_true")
    arguments = parser.parse_args()
    edit(arguments.folder, ESTIMATOR if arguments.estimator else KERAS)
