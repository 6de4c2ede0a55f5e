"""Invalid declarations, and files without one: each is refused with its place, its value and a fix."""

from __future__ import annotations

import re

import pytest

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import load

# (old text in the good declaration, new text, parts of the message)
REPLACED = [
    (
        "train_steps: 500",
        "train_step: 500",
        ["mine.yaml:7  trainer.train_step: 500", "unknown key", "one of train_steps, ", " more\n", "`train_steps`?"],
    ),
    ("name: mine\n", "", ["name\n", "this key is missing", "add `name:`"]),
    ("  train_steps: 500\n", "", ["mine.yaml:5  trainer.train_steps", "neither trainer.train_steps nor"]),
    ("  dataset: mnist\n", "", ["mine.yaml:2  data.dataset", "this key is missing"]),
    ("500", "yes", ["trainer.train_steps: true", "true/false is no number", "a whole number, at least 1"]),
    ("500", "'500'", ["trainer.train_steps: '500'", "text is no number", "without quotes"]),
    ("500", "500.0", ["trainer.train_steps: 500.0", "it is no whole number", "write 500"]),
    ("500", "!!float abc", ["mine.yaml:1", "could not convert string to float"]),
    ("500", "!!int ''", ["mine.yaml:1", "YAML of plain values"]),
    ("500", "!!bool maybe", ["YAML of plain values"]),
    ("500", "0", ["trainer.train_steps: 0", "out of range", "at least 1"]),
    ("dataset: mnist", "dataset: 5", ["mine.yaml:3  data.dataset: 5", "a whole number is no text", "in quotes"]),
    ("dataset: mnist", "dataset: mnist\n  download: 1", ["data.download: 1", "neither true nor false"]),
    ("dataset: mnist", "dataset: mnist\n  version: 3.0", ["data.version: 3.0", "a fraction is no text", "in quotes"]),
    ("  dataset: mnist", "  - mnist", ["mine.yaml:"]),
    ("name: mine", "name: My Model_2", ["name: My Model_2", "cannot be used", "`my-model-2`"]),
    ("train_steps: 500", "epochs: 3", ["did you mean `trainer.train_epochs`?"]),
    ("  model: mnist_cnn\n", "", ["mine.yaml:5  trainer.model", "neither trainer.model nor"]),
    ("train[:90%]", "train[90%]", ["mine.yaml:4  data.splits.train: train[90%]", "is not a split expression"]),
    ("train[:90%]", "train[:190%]", ["goes beyond 100%"]),
    ("train[:90%]", "train[10%:500]", ["one end is in percent, and the other is not"]),
    ("train[:90%]", "train+", ["a part of the expression is empty"]),
    ("dataset: mnist", "dataset: digits", ["mine.yaml:4  data.splits.eval: test", "digits has no split `test`"]),
    ("dataset: mnist", "dataset: ./images", ["data.dataset: ", "there is no such file or folder"]),
    ("dataset: mnist", "dataset: nowhere.sets:Mine", ["there is no module `nowhere.sets`"]),
    ("500", "500\n  xla: 'true'", ["trainer.xla: 'true'", "write true or false"]),
    ("model: mnist_cnn", "model: nets.small.net", ["did you mean `nets.small:net`?"]),
    ("model: mnist_cnn", "model: mnist_cn", ["one of cifar_cnn, cifar_resnet, cifar_resnet9, mnist_cnn; or"]),
    ("model: mnist_cnn", "model: tfx_estimator.model_fn.networks:mnist_cn", ["defines no `mnist_cn`"]),
]


@pytest.mark.parametrize(("old", "new", "parts"), REPLACED, ids=lambda value: str(value)[:40])
def test_a_wrong_value(refuse, good, old, new, parts):
    assert old in good
    message = refuse(good.replace(old, new))
    for part in parts:
        assert part in message
    assert "to do:" in message
    assert message.endswith("then:     tfx-estimator validate mine.yaml")


# (appended line, parts of the message)
APPENDED = [
    ("batch_size: 5", ["batch_size: 5", "unknown key", "trainer.global_batch_size"]),
    ("  learning_rate: 1", ["did you mean `trainer.optimizer.learning_rate`?"]),
    ("self: 5", ["mine.yaml:8  self: 5", "unknown key `self`"]),
    ("cls: 5", ["mine.yaml:8  cls: 5", "unknown key `cls`"]),
    ("zzzz: 5", ["unknown key `zzzz`", "expected: one of name, data,", "remove it"]),
    ("  optimizer: sgd", ["trainer.optimizer: sgd", "text is no section"]),
    ("  class_weights: 5", ["trainer.class_weights: 5", "to do:    write a value of that kind"]),
    ("  params: {a: {b: .nan}}", ["trainer.params", "a: b: a number is not finite"]),
    ("beam: {runner: dask}", ["choose one of: direct, flink, spark, portable, dataflow"]),
    ("  train_epochs: 2", ["are both given", "--set trainer.train_steps=null"]),
    ("  module_file: m.py", ["are both given", "--set trainer.model=null"]),
    ("  optimizer: {clipnorm: 1}", ["did you mean `trainer.optimizer.clip_norm`?"]),
    ("evaluator: {min_accuracy: 97}", ["evaluator.min_accuracy: 97", "out of range", "at most 1", "0 to 1"]),
    ("evaluator: {slices: [lable]}", ["evaluator.slices.0: lable", "no feature `lable`", "did you mean `label`?"]),
    ("beam: {runner: portable}", ["1 problem", "beam.environment_type", "has no TFX", "LOOPBACK"]),
    ("beam: {runner: portable, job_endpoint: 'a:1', environment_type: EXTERNAL}", ["HOST:PORT of the worker pool"]),
    ("beam: {workers: 2}", ["beam.runner is direct, which", "set beam.runner: flink or spark or portable"]),
    ("beam: {runner: flink, master: 'a:1'}", ["1 problem", "beam.environment_type", "has no TFX"]),
    ("beam: {runner: flink, master: a, environment_type: LOOPBACK}", ["beam.master: a", "HOST:PORT of the job"]),
    ("beam: {runner: spark, master: 'a:1', environment_type: LOOPBACK}", ["beam.master: a:1", "spark://HOST:PORT"]),
    ("beam: {runner: spark, flink_version: '1.19'}", ["beam.flink_version", "beam.runner: flink"]),
    ("beam: {runner: flink, job_server_jar: no.jar}", ["beam.job_server_jar: no.jar", "there is no such file"]),
    ("beam: {runner: flink, job_endpoint: 'a:1'}", ["beam.job_endpoint: a:1", "set beam.runner: portable"]),
    ("beam: {runner: dataflow}", ["2 problems", "Dataflow needs its own section", "data.data_dir: null"]),
    ("beam: {runner: dataflow, dataflow: {projekt: a}}", ["did you mean `project`?", "temp_location"]),
    ("beam: {dataflow: {}}", ["beam.dataflow.project"]),
    ("transform: {module_file: none.py}", ["transform.module_file", "there is no such file"]),
    ("transform: {preprocessing_fn: 'a:b', module_file: c.py}", ["are both given"]),
    ("  keep_best: 5", ["a whole number is no section"]),
    ("  early_stopping: {patience: 0}", ["trainer.early_stopping.patience: 0", "out of range"]),
    # Other common names
    ("  distribution: {train: {strategy: miror}}", ["did you mean `mirrored`?"]),
    ("  distribution: {train: {strategy: MirroredStrategy}}", ["did you mean `mirrored`?"]),
    ("  distribution: {train: {strategy: MultiWorkerMirroredStrategy}}", ["did you mean `multi_worker_mirrored`?"]),
    ("  distribution: {train: {strategy: mirrored, cross_device_ops: hierarchical}}", ["mean `hierarchical_copy`?"]),
    ("  distribution: {strategy: mirrored}", ["did you mean `trainer.distribution.train.strategy`?"]),
    ("  distribution: {train: {num_workers: 2}}", ["did you mean `trainer.distribution.train.workers`?"]),
    ("  distribution: {eval: {num_gpus: 2}}", ["did you mean `trainer.distribution.eval.devices.gpu`?"]),
    ("  distribution: {train: {max_restarts: 2}}", ["did you mean `trainer.distribution.max_restarts`?"]),
    ("  distribution: {train: {strategy: none}}", ["did you mean `one_device`?"]),
    ("  distribution: {train: {strategy: collective_all_reduce}}", ["did you mean `multi_worker_mirrored`?"]),
    ("  distribution: {train: 'mirored:2'}", ["did you mean `mirrored`?"]),
    ("  distribution: {train: 'mirrored:0'}", ["neither a number from 1 to 64"]),
    ("  distribution: {train: 'multi_worker_mirrored:99'}", ["at most 64"]),
    ("  distribution: {eval: 'multi_worker_mirrored:2'}", ["choose one of: one_device, mirrored, central_storage"]),
]


@pytest.mark.parametrize(("line", "parts"), APPENDED, ids=lambda value: str(value)[:40])
def test_a_wrong_line(refuse, good, line, parts):
    message = refuse(good + line + "\n")
    assert "mine.yaml:" in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    "lines",
    [
        "  augment: [nonsense]",
        "  augment: [{random_crop: {patience: 2}}]",
        "  distribution: {train: {strategy: parameter_server, variable_partitioner: {patienc: 1}}}",
    ],
)
def test_similar_keys_of_other_sections_are_not_suggested(problems, good, lines):
    [problem] = problems(f"{good}{lines}\n")
    assert "unknown" in problem
    assert "did you mean" not in problem


OVERRIDES = [
    ("trainer.train_step=5", ["--set trainer.train_step=5", "unknown key", "did you mean `train_steps`?"]),
    ("trianer.seed=5", ["  --set trianer.seed=5  trianer: {seed: 5}", "did you mean `trainer`?"]),
    ("trainer.train_steps", ["has no `=`", "write --set trainer.train_steps=VALUE"]),
    ("trainer.train_steps=5.0", ["      to do:    in --set trainer.train_steps=VALUE: write 5"]),
    ("=5", ["has an empty part"]),
    ("self=1", ["unknown key `self`"]),
    ("trainer.train_steps.more=5", ["trainer.train_steps holds 500, and has no keys of its own"]),
    ("trainer.params=[1", ["trainer.params", "a YAML value", "quote the value"]),
    ("name=!!python/name:os.system", ["tag:yaml.org,2002:python/name:os.system"]),
]


@pytest.mark.parametrize(("override", "parts"), OVERRIDES)
def test_a_wrong_override(refuse, good, override, parts):
    message = refuse(good, [override])
    assert f"--set {override}" in message
    for part in parts:
        assert part in message


def test_all_problems_are_shown_at_once_in_the_files_order(refuse, good):
    text = good.replace("mnist_cnn", "mnist_cn").replace("500", "yes").replace("train[:90%]", "train[90%]")
    message = refuse(text + "evaluater: {}\n", ["beam.runner=dask", "nothing"])
    assert "the declaration mine.yaml has 6 problems" in message
    order = ["data.splits.train", "trainer.model", "trainer.train_steps", "evaluater", "--set nothing", "beam.runner"]
    positions = [message.index(f"{path}") for path in order]
    assert positions[:4] == sorted(positions[:4])
    assert max(positions[:4]) < min(positions[4:])


def test_consequences_of_another_problem_are_not_reported(refuse, good):
    # A model of the wrong kind is not also a missing one.
    message = refuse(good.replace("model: mnist_cnn", "model: 5"))
    assert "1 problem\n" in message
    # A wrong dataset adds no problems of its splits.
    assert "1 problem\n" in refuse(good.replace("dataset: mnist", "dataset: 5"))
    # A value that YAML could not read is not also null.
    assert "1 problem\n" in refuse(good.replace("500", "!!int x"))


MODULE_FILES = [
    ("def other(): pass\ndef _hidden(): pass\n", ["it defines _hidden, other", "define trainer_fn or run_fn"]),
    ("def runfn(fn_args): pass\n", ["it defines runfn", "rename `runfn`"]),
    ("x = 1\n", ["it defines no function"]),
    ("def run_fn(:\n", ["mod.py:1 does not parse", "correct the file"]),
    ("x = '\0'\n", ["does not parse"]),
    ("class A:\n    def run_fn(self): pass\n", ["it defines no function"]),
]


@pytest.mark.parametrize(("text", "parts"), MODULE_FILES)
def test_a_wrong_module_file(refuse, tmp_path, good, text, parts):
    (tmp_path / "mod.py").write_text(text)
    message = refuse(good.replace("model: mnist_cnn", "module_file: mod.py"))
    assert "mine.yaml:6  trainer.module_file: " in message
    for part in parts:
        assert part in message


def test_module_files_that_are_missing(refuse, tmp_path, good):
    (tmp_path / "taxi_utils.py").write_text("from elsewhere import *\n")
    with_file = good.replace("model: mnist_cnn", "module_file: FILE")
    assert "did you mean `taxi_utils.py`?" in refuse(with_file.replace("FILE", "taxi_util.py"))
    # The names that a star import defines are unknown: the file is accepted.
    assert load("mine.yaml", ["trainer.module_file=taxi_utils.py"]).declaration.trainer.model is None


TEXTS = [
    ("", ["mine.yaml:1", "it is empty", "tfx-estimator copy digits mine.yaml"]),
    ("# only a comment\n", ["it is empty"]),
    ("just text\n", ["it holds just text, not a mapping"]),
    ("name: a\nname: b\n", ["mine.yaml:2  name", "is in line 1 already", "data\n", "this key is missing"]),
    ("name: a\ndata:\n\tdataset: b\n", ["mine.yaml:3", "cannot start any token", "indented by spaces"]),
    ("name: a: b\n", ["mine.yaml:1", "mapping values are not allowed", "quotes"]),
    ("name: a\n---\nname: b\n", ["mine.yaml:2", "single document"]),
    ("a: &a [*a]\n", ["recursion"]),
    ("name: é\nb:\n  \x01\n", ["control characters are not allowed"]),
    ("yes: 1\n", ["the key 'yes' is no text", 'put it in quotes: "yes"']),
    ("name: !!python/object/apply:os.system ['touch pwned']\n", ["tag:yaml.org,2002:python/object/apply:os.system"]),
    ('name: "\\UFFFFFFFF"\n', ["mine.yaml:1\n", "escape code"]),
    ("<<: 5\n", ["mine.yaml:1", "for merging"]),
]


@pytest.mark.parametrize(("text", "parts"), TEXTS, ids=lambda value: repr(value)[:40])
def test_a_damaged_file(refuse, tmp_path, text, parts):
    message = refuse(text)
    for part in parts:
        assert part in message
    assert not (tmp_path / "pwned").exists()


def test_missing_files_are_refused_with_the_nearest_name(write, good):
    write(good)
    for source, message in {
        "digit": "did you mean the preset `digits`?",
        "mnie.yaml": "did you mean `mine.yaml`?",
        "zzz/zzz.yaml": "one of the presets digits, cancer, diabetes, mnist, cifar10, cifar10_resnet",
        ".": "cannot be read: Is a directory",
    }.items():
        with pytest.raises(DeclarationError, match=re.escape(message)):
            load(source)


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_bytes("name: mine\n# caf\xe9\n".encode("latin-1"))
    with pytest.raises(DeclarationError, match=r"mine.yaml:2 is not UTF-8: byte 0xe9"):
        load(file)
    file.write_bytes("name: mine".encode("utf-16"))
    with pytest.raises(DeclarationError, match=r"mine.yaml:1 is not UTF-8"):
        load(file)
