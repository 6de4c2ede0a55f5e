"""The pipeline built from a declaration."""

from __future__ import annotations

import dataclasses
import json
import os
import sys

import pytest
from google.protobuf import text_format
from tensorflow_model_analysis.proto import config_pb2
from tfx.dsl.compiler.compiler import Compiler

from tests.folders import write_files
from tests.root import run_python
from tfx_estimator import PipelineFolders, create_pipeline, load_declaration
from tfx_estimator.components.evaluator.eval_config import eval_config
from tfx_estimator.components.trainer.settings import OPERATION_KEY, SETTINGS_KEY, Settings
from tfx_estimator.components.tuner.executor import TUNE_KEY
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.evaluator import EvaluatorSection
from tfx_estimator.pipeline.config.task import CLASSES, Task

NODES = [
    "TfdsExampleGen",
    "ImageSchemaGen",
    "StatisticsGen",
    "ExampleValidator",
    "Transform",
    "Trainer",
    "BaselineResolver",
    "Evaluator",
    "Pusher",
]


def build(tmp_path, *overrides: str, folders=None):
    loaded = load("digits", overrides)
    return create_pipeline(loaded.declaration, folders or PipelineFolders(str(tmp_path), "digits"), loaded.search_paths)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory):
    """The pipeline of the unchanged preset."""
    return build(tmp_path_factory.mktemp("plain"))


def component(pipeline, name: str):
    return next(node for node in pipeline.components if node.id == name)


def test_the_components_are_in_order_and_nothing_trains_before_validation(tmp_path):
    pipeline = build(tmp_path)
    assert [node.id for node in pipeline.components] == NODES
    assert component(pipeline, "ExampleValidator") in component(pipeline, "Transform").upstream_nodes
    assert pipeline.pipeline_info.pipeline_root == str(tmp_path / "digits" / "artifacts")
    assert "FnApiRunner" in pipeline.beam_pipeline_args[0]


@pytest.mark.parametrize("target", ["", "kubeflow"])
def test_the_content_of_declared_files_is_in_the_keys_and_their_place_is_not(tmp_path, target):
    def properties(folder: str, text: str) -> list[str]:
        write_files(tmp_path / folder, {"mean.txt": text})
        files = f"[{tmp_path / folder / 'mean.txt'}]"
        loaded = load("digits", [f"transform.files={files}", f"trainer.files={files}"])
        pipeline = create_pipeline(loaded, PipelineFolders(str(tmp_path), "digits"), target=target)
        trainer = component(pipeline, "Trainer").exec_properties
        kept = {key: value for key, value in trainer.items() if target or key != OPERATION_KEY}
        return [component(pipeline, "Transform").exec_properties["custom_config"], json.dumps(kept, default=str)]

    transform, trainer = properties("a", "0.5")
    assert properties("b", "0.5") == [transform, trainer]
    other_transform, other_trainer = properties("a", "100")
    assert other_transform != transform
    assert other_trainer != trainer


def test_the_words_to_number_are_in_the_key_once_declared(tmp_path):
    def config(*overrides: str) -> dict:
        pipeline = create_pipeline(load("cancer", overrides), PipelineFolders(str(tmp_path), "cancer"))
        return json.loads(component(pipeline, "Transform").exec_properties["custom_config"])

    plain = config()
    assert "top_k" not in plain
    assert config("transform.top_k=7") == {**plain, "top_k": 7}


def test_a_component_that_runs_again_resumes_nothing(tmp_path):
    loaded = dataclasses.replace(load("digits"), rerun=("Trainer",))
    again = create_pipeline(loaded, PipelineFolders(str(tmp_path), "digits"))
    properties = component(again, "Trainer").exec_properties
    assert Settings.of(properties).rerun == ("Trainer",)
    # The next run finds its result.
    assert properties[SETTINGS_KEY] == component(build(tmp_path), "Trainer").exec_properties[SETTINGS_KEY]


def test_the_evaluator_reads_the_test_split_where_one_is_declared(plain, tmp_path):
    splits = "data.splits={train: 'train[:80%]', eval: 'train[80%:90%]', test: 'train[90%:]'}"
    read = [component(each, "Evaluator").exec_properties["example_splits"] for each in (plain, build(tmp_path, splits))]
    assert read == ['["eval"]', '["test"]']


def settings(pipeline):
    return Settings.of(component(pipeline, "Trainer").exec_properties)


def test_the_trainer_receives_the_declaration_and_the_images(tmp_path):
    received = settings(build(tmp_path, "trainer.train_steps=7"))
    assert received.trainer.train_steps == 7
    assert received.image_shape == (28, 28, 1)
    assert received.label_names == tuple(str(digit) for digit in range(10))


OWN = """
import tensorflow as tf
from tfx_estimator.data.preprocessing import preprocessing_fn as scaled
def network(num_classes):
    return tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(num_classes)])
"""


def test_a_loaded_declaration_brings_its_own_search_paths(tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text(OWN)
    (tmp_path / "own.yaml").write_text(
        "name: own\ndata: {dataset: digits, splits: {train: 'train[:80%]', eval: 'train[80%:]'}}\n"
        "trainer: {model: 'beside:network', train_steps: 5}\ntransform: {preprocessing_fn: 'beside:scaled'}\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    loaded, folders = load_declaration(tmp_path / "own.yaml"), PipelineFolders(str(tmp_path / "runs"), "own")
    in_parts = create_pipeline(loaded.declaration, folders, loaded.search_paths, loaded.declared)
    assert str(tmp_path) not in sys.path
    whole = create_pipeline(loaded, folders)
    for one, other in zip(whole.components, in_parts.components, strict=True):
        assert one.exec_properties == other.exec_properties
    assert "trainer.model" in settings(whole).declared
    # TFX imports the preprocessing_fn by its name.
    assert str(tmp_path) in sys.path


OPERATIONAL = (
    *("evaluator.min_accuracy=0.5", "evaluator.metrics=[AUC]", "pusher.destination=elsewhere", "data.download=false"),
    *("trainer.stall_timeout=9", "trainer.start_timeout=9", "trainer.log_every_steps=9", "trainer.onednn=false"),
    *("trainer.intra_op_threads=1", "trainer.threads.inter_op=1", "trainer.profile={steps: 5}"),
    *("trainer.keep_checkpoint_max=9", "trainer.distribution.max_restarts=9", "trainer.distribution.network=host"),
)


@pytest.mark.parametrize(
    ("overrides", "changes"),
    [
        (OPERATIONAL, False),
        (("trainer.optimizer.learning_rate=0.5",), True),
        (("trainer.model=cifar_cnn",), True),
    ],
    ids=["operational", "learning rate", "model"],
)
def test_only_what_decides_the_model_changes_the_trainers_cache_key(plain, tmp_path, overrides, changes):
    trainers = [component(pipeline, "Trainer") for pipeline in (plain, build(tmp_path, *overrides))]
    # TFX keys all properties but those that the driver blanks.
    one, other = (
        {name: value for name, value in each.exec_properties.items() if name not in each.driver_class.UNKEYED}
        for each in trainers
    )
    assert (one != other) is changes


def test_two_pipelines_of_one_process_have_separate_settings(tmp_path):
    overrides = ("trainer.stall_timeout=77", "trainer.intra_op_threads=3", "trainer.distribution.network=host")
    one, other = build(tmp_path, *overrides), build(tmp_path)
    found = [
        (each.stall_timeout, each.trainer.intra_op, each.distribution.network) for each in map(settings, (one, other))
    ]
    assert found == [(77, 3, "host"), (600, None, "private")]
    assert settings(one).trainer.stall_timeout == 77
    assert not [name for name in os.environ if "RESOLVED" in name]


def test_without_metrics_the_eval_config_has_the_defaults():
    text = """
      model_specs { signature_name: "serving_default" label_key: "label" }
      slicing_specs { }
      slicing_specs { feature_keys: "label" }
      metrics_specs {
        metrics {
          class_name: "SparseCategoricalAccuracy"
          per_slice_thresholds {
            slicing_specs { }
            threshold {
              value_threshold { lower_bound { value: 0.5 } }
              change_threshold { absolute { value: -0.01 } direction: HIGHER_IS_BETTER }
            }
          }
        }
        metrics { class_name: "SparseCategoricalCrossentropy" }
        metrics { class_name: "ExampleCount" }
      }
    """
    section, task = EvaluatorSection(min_accuracy=0.5), Task(CLASSES, "label", tuple("abc"))
    assert eval_config(section, task) == text_format.Parse(text, config_pb2.EvalConfig())


@pytest.mark.parametrize("metric", [{"name": "AUC"}, {"name": "Precision", "binarize": ["3", 8]}])
def test_metrics_that_can_be_measured_are_built(tmp_path, metric):
    measured = component(build(tmp_path, f"evaluator.metrics=[{metric}]"), "Evaluator").exec_properties["eval_config"]
    assert metric["name"] in measured


@pytest.mark.parametrize(
    ("metric", "parts"),
    [
        ("{name: Precision, binarize: [10]}", ["evaluator.metrics.0.binarize: the data has no class `10`", "0 to 9"]),
        ("{name: Precison}", ["has a metric of this name", "did you mean `Precision`?"]),
        ("{name: AUC, options: {num_thresholds: 1}}", ["AUC with", "cannot be measured"]),
    ],
)
def test_metrics_that_cannot_be_measured_are_refused_before_anything_runs(tmp_path, metric, parts):
    with pytest.raises(DeclarationError) as caught:
        build(tmp_path, f"evaluator.metrics=[{metric}]")
    assert all(part in str(caught.value) for part in parts)


def test_only_slices_by_what_a_preprocessing_fn_adds_read_the_transform_graph(plain, tmp_path, monkeypatch):
    (tmp_path / "adding.py").write_text("def preprocessing_fn(inputs): pass\n")
    monkeypatch.chdir(tmp_path)

    own = ("transform.preprocessing_fn=adding:preprocessing_fn", "evaluator.slices=[[label, ink]]")
    nodes = [node.pipeline_node for node in Compiler().compile(build(tmp_path, *own)).nodes]
    inputs = {node.node_info.id: node.inputs.inputs for node in nodes}
    assert inputs["Evaluator"]["transform_graph"].channels[0].producer_node_query.id == "Transform"
    assert "transform_graph" not in component(plain, "Evaluator").inputs


def test_components_that_are_not_used_are_not_imported():
    # `tfx.v1` imports google.cloud.aiplatform, which takes as long as TensorFlow.
    code = "import tfx_estimator.pipeline.build, sys\n"
    code += "print([m for m in ('tfx.v1', 'google.cloud.aiplatform') if m in sys.modules])"
    done = run_python("-c", code)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_tuner_runs_before_the_trainer_and_feeds_it(plain, tmp_path):
    pipeline = build(tmp_path, "tune.ranges.trainer.optimizer.learning_rate=[0.01, 0.1]")
    assert [node.id for node in pipeline.components] == [*NODES[:5], "Tuner", *NODES[5:]]
    tuner, trainer = component(pipeline, "Tuner"), component(pipeline, "Trainer")
    assert trainer.inputs["hyperparameters"] is tuner.outputs["best_hyperparameters"]
    assert '"values": [0.01, 0.1]' in tuner.exec_properties[TUNE_KEY]
    # Both have the same settings, except for the tuned values.
    assert set(tuner.inputs) == {"examples", "schema", "transform_graph"}
    same = {key: value for key, value in trainer.exec_properties.items() if value is not None}
    assert {key: value for key, value in tuner.exec_properties.items() if key in same} == same
    assert "hyperparameters" not in component(plain, "Trainer").inputs
