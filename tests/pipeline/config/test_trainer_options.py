"""Options of `trainer`: accepted values, and the messages for wrong ones."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests.root import ROOT
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import Declaration, load
from tfx_estimator.pipeline.config.best import EarlyStopping, KeepBest
from tfx_estimator.pipeline.config.class_weights import weights_by_label
from tfx_estimator.pipeline.config.warm_start import WarmStart
from tfx_estimator.pipeline.user_data.names import find_label, sort_classes


def test_keep_best_and_early_stopping_are_off_by_default_and_may_be_a_metrics_name(write, good):
    trainer = load(write(good)).declaration.trainer
    assert trainer.keep_best is trainer.early_stopping is None
    loaded = load(write(f"{good}  keep_best: accuracy\n  early_stopping:\n"), ["trainer.early_stopping.patience=5"])
    assert loaded.declaration.trainer.keep_best == KeepBest(metric="accuracy")
    assert loaded.declaration.trainer.early_stopping == EarlyStopping(metric="average_loss", patience=5)
    assert loaded.origins["trainer.keep_best.metric"] == "mine.yaml:8"
    assert load("mine.yaml", ["trainer.keep_best=null"]).declaration.trainer.keep_best is None
    # An empty section is the same as null.
    assert load("mine.yaml").declaration.trainer.early_stopping is None
    assert type(loaded.declaration).from_json(loaded.declaration.to_json()) == loaded.declaration


@pytest.mark.parametrize(
    ("metric", "better"),
    [
        ("loss", "min"),
        ("mean_squared_error", "min"),
        ("perplexity", "min"),
        ("top_5_acc", "max"),
        ("auc_precision_recall", "max"),
        ("f1", "max"),
        ("my_metric", None),
        ("accuracy_loss", None),
        ("horseshoe", None),
        # Classes of TFMA and Keras.
        ("AUC", "max"),
        ("F1Score", "max"),
        ("RootMeanSquaredError", "min"),
        ("ThresholdAtRecall", None),
    ],
)
def test_a_known_metric_has_a_direction(metric, better):
    assert KeepBest(metric=metric).better == better
    assert KeepBest(metric=metric, mode="max").better == "max"


def checkpoint(folder: Path, step: int, content: bytes = b"x") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    prefix = folder / f"model.ckpt-{step}"
    for suffix in (".index", ".data-00000-of-00001"):
        prefix.with_name(prefix.name + suffix).write_bytes(content)
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{prefix.name}"\nall_model_checkpoint_paths: "a"\n')
    return str(prefix)


def saved_model(folder: Path) -> str:
    prefix = folder / "variables" / "variables"
    prefix.parent.mkdir(parents=True)
    prefix.with_suffix(".index").write_bytes(b"x")
    return str(prefix)


def test_weights_are_found_in_checkpoints_and_saved_models(tmp_path):
    first, last = checkpoint(tmp_path / "run", 20), checkpoint(tmp_path / "run", 60)
    assert WarmStart(checkpoint=str(tmp_path / "run")).source == last
    assert WarmStart(checkpoint=first).source == first
    plain = saved_model(tmp_path / "plain")
    assert WarmStart(model=str(tmp_path / "plain")).source == plain
    artifact = saved_model(tmp_path / "artifact" / "Format-Serving")
    assert WarmStart(model=str(tmp_path / "artifact")).source == artifact
    saved_model(tmp_path / "pushed" / "9")
    newest = saved_model(tmp_path / "pushed" / "10")
    assert WarmStart(model=str(tmp_path / "pushed")).source == newest


def test_the_fingerprint_is_of_the_weights_and_not_of_their_place(tmp_path):
    one = WarmStart(checkpoint=checkpoint(tmp_path / "one", 20)).fingerprint()
    assert WarmStart(checkpoint=checkpoint(tmp_path / "two", 60)).fingerprint() == one
    assert WarmStart(checkpoint=checkpoint(tmp_path / "one", 20, b"y")).fingerprint() != one


def test_a_path_is_relative_to_the_declarations_folder(write, good, tmp_path):
    checkpoint(tmp_path / "run", 20)
    loaded = load(write(good + "  warm_start: {checkpoint: run, exclude: ['logits/*']}\n"))
    section = loaded.declaration.trainer.warm_start
    assert section == WarmStart(checkpoint=str(tmp_path / "run"), exclude=("logits/*",))
    assert loaded.origins["trainer.warm_start.checkpoint"] == "mine.yaml:8, made absolute"


def test_a_file_of_keras_is_weights_too_and_its_content_alone_is_in_the_key(write, refuse, good, tmp_path):
    content = b"\x89HDF\r\n\x1a\n of a base"
    for name in ("base_notop.h5", "again.weights.h5"):
        (tmp_path / name).write_bytes(content)
    sections = [
        load(
            write(good + f"  warm_start: {{weights: {name}, prefix: base}}\n  freeze: ['base/*']\n")
        ).declaration.trainer
        for name in ("base_notop.h5", "again.weights.h5")
    ]
    assert sections[0].freeze == ("base/*",)
    assert sections[0].warm_start == WarmStart(weights=str(tmp_path / "base_notop.h5"), prefix="base")
    one, other = (each.warm_start.fingerprint() for each in sections)
    assert one == other
    (tmp_path / "base_notop.h5").write_bytes(content + b".")
    assert sections[0].warm_start.fingerprint() != one
    (tmp_path / "text.h5").write_text("no weights")
    assert "no weights are there" in refuse(good + "  warm_start: {weights: text.h5}\n")
    assert "there is no such file" in refuse(good + "  warm_start: {weights: none.h5}\n")


RESUMED = "  warm_start: {checkpoint: run, resume: true%s}\n"
TUNED = "tune: {max_trials: 2, ranges: {trainer.optimizer.learning_rate: {values: [0.1, 0.2]}}}\n"


@pytest.mark.parametrize(
    ("code", "lines", "message"),
    [
        ("model: mnist_cnn", RESUMED % "", ""),
        ("model: mnist_cnn", RESUMED.replace("run", "late") % "", "checkpoint is already at the last step"),
        ("model: mnist_cnn", RESUMED % ", exclude: ['logits/*']", "a resumed training keeps all of its variables"),
        ("model: mnist_cnn", RESUMED % "" + TUNED, "trials begin at step 0"),
        ("module_file: own.py", RESUMED % "", "a module file decides where its checkpoints are"),
        ("module_file: runs.py", "  warm_start: {checkpoint: run}\n", "a run_fn makes its own model"),
        ("module_file: runs.py", "  freeze: ['base/*']\n", "a run_fn trains what it makes"),
        ("model: mnist_cnn", RESUMED % ", prefix: base", "a resumed training keeps all of its variables"),
    ],
)
def test_only_a_built_in_training_resumes_from_a_checkpoint(write, refuse, good, tmp_path, code, lines, message):
    write("def trainer_fn(fn_args, schema): ...\n", "own.py")
    write("def run_fn(fn_args): ...\n", "runs.py")
    checkpoint(tmp_path / "run", 20)
    checkpoint(tmp_path / "late", 500)
    text = good.replace("model: mnist_cnn", code) + lines
    if message:
        assert message in refuse(text)
    else:
        assert load(write(text)).declaration.trainer.warm_start.step == 20


SCHEMA = json.loads((ROOT / "tests" / "golden" / "declaration.schema.json").read_text())


def weights_of(declaration: Declaration, *names: str):
    section = Settings(declaration=declaration.dict(), label_names=names).trainer
    return section.class_weights


@pytest.mark.parametrize(
    ("declared", "by_label"),
    [("[1, 2, 0.5]", (1.0, 2.0, 0.5)), ("{bird: 3}", (1.0, 3.0, 1.0)), ("{cat: 0, dog: 2.5}", (0.0, 1.0, 2.5))],
)
def test_weights_are_by_label_or_by_name(write, good, declared, by_label):
    # The classes of this data set are not known yet.
    good = good.replace("dataset: mnist", "dataset: beans")
    loaded = load(write(good + f"  class_weights: {declared}\n  label_smoothing: 0.1\n"))
    assert weights_of(loaded.declaration, "cat", "bird", "dog") == by_label
    assert load(write(loaded.declaration.to_yaml())).declaration == loaded.declaration
    assert Declaration.from_json(loaded.declaration.to_json()) == loaded.declaration
    jsonschema.validate(json.loads(loaded.declaration.to_json()), SCHEMA)


def test_weights_that_do_not_fit_the_classes_are_refused_once_these_are_known(write, good):
    good = good.replace("dataset: mnist", "dataset: beans")
    three = load(write(good + "  class_weights: [1, 2, 3]\n")).declaration
    with pytest.raises(DeclarationError, match=r"trainer.class_weights: 3 weights for 2 classes"):
        weights_of(three, "cat", "dog")
    named = load(write(good + "  class_weights: {dug: 2}\n")).declaration
    with pytest.raises(DeclarationError, match=r"no class `dug`[\s\S]*did you mean `dog`"):
        weights_of(named, "cat", "dog")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("label_smoothing: 1", "out of range"),
        ("class_weights: 2", "a whole number is no list and a whole number is no mapping"),
        ("class_weights: [1, x]", "item 2: text is no number"),
        ("class_weights: [1, -1]", "the value is out of range"),
        ("warm_start: {checkpoint: nowhere}", "there is no such file or folder"),
        ("warm_start: {model: .}", "no weights are there"),
        ("warm_start: {}", "exactly one of weights, checkpoint, model and blessed"),
        ("warm_start: {checkpoint: a, model: b}", "checkpoint and model are given"),
    ],
)
def test_a_wrong_option_is_refused(refuse, good, line, text):
    message = refuse(good.replace("dataset: mnist", "dataset: digits") + f"  {line}\n")
    assert "mine.yaml:8  trainer." in message
    assert text in message


def test_the_classes_of_an_image_folder_are_known(refuse, good, tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "1.png").touch()
    text = good.replace("dataset: mnist", "dataset: ./photos")
    assert "no class `dg`" in refuse(text + "  class_weights: {dg: 2}\n")
    splits = ["data.splits.train=train[:50%]", "data.splits.eval=train[50%:]"]
    loaded = load("mine.yaml", ["trainer.class_weights={dog: 2}", *splits])
    assert loaded.declaration.trainer.class_weights == {"dog": 2.0}


def test_numbers_are_sorted_by_value_and_names_by_the_alphabet():
    assert sort_classes(["10", "2", "1", "02", "9" * 50, "2"]) == ["1", "02", "2", "10", "9" * 50]
    assert sort_classes(["10", "2", "a"]) == ["10", "2", "a"]


def test_a_class_is_found_by_each_unicode_form_of_its_name():
    names = sort_classes(["cafe\u0301", "dog"])
    assert find_label("caf\u00e9", names) == find_label("cafe\u0301", names) == find_label(0, names) == 0
    assert weights_by_label({"cafe\u0301": 2.0}, names) == (2.0, 1.0)
