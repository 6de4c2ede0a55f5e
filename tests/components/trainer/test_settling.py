"""Values resolved late in a declaration: steps of epochs, weights of balanced classes, tuned values."""

from __future__ import annotations

import json

import pytest

from tests.artifacts import artifact, example, write_records
from tests.refusals import refused
from tfx_estimator.components.trainer import settling
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.base.errors import DamagedDataError, DeclarationError


@pytest.fixture
def resolve(declaration):
    """Resolves a declared trainer for a number of examples; returns its section and the properties."""

    def run(count, **trainer):
        examples = artifact("Examples", **({"num_examples_train": count} if count else {}))
        settings = Settings(declaration=declaration(**{"train_steps": None, **trainer}))
        properties = {"train_args": json.dumps({"num_steps": 0, "splits": ["train"]}), "other": "kept"}
        settings, properties = settling.with_steps(settings, properties, [examples])
        return settings.trainer, properties

    return run


@pytest.mark.parametrize(
    ("count", "epochs", "batch", "steps"),
    [(60_000, 5, 128, 2344), (1281, 1, 128, 11), (1000, 0.1, 10, 10), (5, 0.1, 64, 1)],
)
def test_a_partial_step_counts(resolve, count, epochs, batch, steps):
    section, properties = resolve(count, train_epochs=epochs, global_batch_size=batch)
    assert (section.train_steps, section.train_epochs) == (steps, None)
    assert json.loads(properties["train_args"]) == {"num_steps": steps, "splits": ["train"]}
    assert properties["other"] == "kept"


def test_declared_steps_are_kept(resolve):
    section, properties = resolve(1000, train_steps=7)
    assert (section.train_steps, json.loads(properties["train_args"])["num_steps"]) == (7, 0)


@pytest.mark.parametrize(
    ("count", "trainer", "text"),
    [
        (0, {"train_epochs": 1}, "there is no training example"),
        (128, {"train_epochs": 3, "optimizer": {"warmup_steps": 12}}, "the warm-up does not end"),
        (128, {"train_epochs": 3, "profile": {"start_step": 12}}, "training ends before"),
        (10**9, {"train_epochs": 10**6, "global_batch_size": 1}, "1,000,000,000,000,000 steps"),
    ],
)
def test_epochs_that_cannot_be_converted_to_steps_are_refused(resolve, count, trainer, text):
    with refused(DeclarationError, text, "train_epochs") as caught:
        resolve(count, **trainer)
    assert caught.value.todo


@pytest.fixture
def examples(tmp_path):
    """Makes an Examples artifact with these labels, in two files."""

    def make(*labels: int, name: str = "label"):
        folder = tmp_path / "Split-train"
        folder.mkdir()
        for number in range(2):
            records = (example(**{name: label}) for label in labels[number::2])
            write_records(folder / f"data_tfrecord-{number:05d}-of-00002", records)
        made = artifact("Examples", tmp_path)
        made.split_names = '["train"]'
        return made

    return make


def test_each_class_has_the_same_weight_and_the_total_is_kept():
    counts = {0: 60, 2: 30, 3: 10}
    weights = settling.balanced(counts, 4)
    assert weights == pytest.approx((100 / 180, 1.0, 100 / 90, 100 / 30))
    assert [weights[label] * count for label, count in counts.items()] == pytest.approx([100 / 3] * 3)


def test_the_labels_of_all_files_are_counted(examples):
    assert settling.count_labels([examples(0, 1, 1, 1, 2, 1, 1)]) == {0: 1, 1: 5, 2: 1}


def test_epochs_of_a_tables_examples_whose_number_no_property_has_are_counted(examples, declaration):
    settings = Settings(declaration=declaration(train_steps=None, train_epochs=2, global_batch_size=2))
    properties = {"train_args": json.dumps({"num_steps": 0, "splits": ["train"]})}
    settings, _ = settling.with_steps(settings, properties, [examples(0, 1, 1, 0, 1, 1)])
    assert settings.trainer.train_steps == 6


def test_balanced_becomes_weights_which_are_logged(examples, declaration, caplog):
    caplog.set_level("INFO", "absl.tfx_estimator")
    settings = Settings(declaration=declaration(class_weights="balanced"), label_names=("cat", "dog", "owl"))
    assert settings.trainer.class_weights == "balanced"
    assert Settings.of(settings.to_properties()).trainer.class_weights == "balanced"
    found = settling.with_weights(settings, lambda: settling.count_labels([examples(0, 1, 1, 1)]))
    assert found.trainer.class_weights == pytest.approx((2.0, 2 / 3, 1.0))
    assert caplog.messages == ["trainer.class_weights: balanced: cat 2 (of 1), dog 0.6667 (of 3), owl 1 (of 0)"]


@pytest.mark.parametrize(
    ("labels", "name", "message"),
    [
        ([0, 5], "label", "the label 5, of 2 classes"),
        ([0, -1], "label", "the label -1, of 2 classes"),
        ([0, 1], "other", "no label"),
    ],
)
def test_labels_that_cannot_be_balanced_are_refused(examples, declaration, labels, name, message):
    settings = Settings(declaration=declaration(class_weights="balanced"), label_names=("cat", "dog"))
    with pytest.raises(DeclarationError, match=message):
        settling.with_weights(settings, lambda: settling.count_labels([examples(*labels, name=name)]))


@pytest.mark.parametrize(
    "damage",
    [
        lambda written: written[:-3],
        # A record length that must not be read.
        lambda written: (2**62).to_bytes(8, "little") + written[8:],
        # The label, which precedes the checksum.
        lambda written: written[:-5] + bytes([written[-5] ^ 1]) + written[-4:],
    ],
    ids=["cut", "length", "label"],
)
def test_a_damaged_file_is_named_and_not_counted(examples, tmp_path, damage):
    damaged = examples(0, 1, 1)
    file = tmp_path / "Split-train" / "data_tfrecord-00001-of-00002"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DamagedDataError, match="00001-of-00002"):
        settling.count_labels([damaged])


def test_the_labels_are_counted_once_for_all_trials_of_a_tuning(examples, tmp_path, monkeypatch, caplog):
    from tfx_estimator.components.tuner import training

    read: list[str] = []
    monkeypatch.setattr(training, "count_labels", lambda *given: read.append("") or settling.count_labels(*given))
    trials = training.Trials(str(tmp_path), {"examples": [examples(0, 1, 1)]}, {}, Settings(), None)
    assert [trials._labels for _ in range(2)] == [{0: 1, 1: 2}] * 2
    assert len(read) == 1
    assert not caplog.messages


@pytest.fixture
def tuned(tmp_path):
    """Makes a HyperParameters artifact with these values."""

    def make(values):
        made = artifact("HyperParameters", tmp_path / "best")
        settling.write_config(made.uri, {"space": [], "values": values})
        assert settling.read_values(made.uri) == values
        return [made]

    return make


def test_they_replace_the_declared_ones(settings, tuned):
    declared = settings({"optimizer": {"learning_rate": 0.05}})
    values = {"trainer.optimizer.learning_rate": 0.2, "trainer.train_steps": 7, "units": 3, "tuner/epochs": 2}
    properties = {"train_args": json.dumps({"num_steps": 60, "splits": ["train"]})}
    found, changed = settling.with_hyperparameters(declared, properties, tuned(values))
    assert (found.trainer.optimizer.learning_rate, found.trainer.train_steps) == (0.2, 7)
    assert found.trainer.global_batch_size == declared.trainer.global_batch_size
    assert json.loads(changed["train_args"]) == {"num_steps": 7, "splits": ["train"]}
    assert declared.trainer.optimizer.learning_rate == 0.05


def test_an_item_a_key_and_a_whole_list_can_be_replaced(settings, tuned):
    declared = settings({"augment": ["random_flip", {"random_crop": {"padding": 2}}]})
    values = {
        "trainer.augment.1.random_crop.padding": 3,
        "trainer.class_weights.8": 2.5,
        "trainer.optimizer": {"name": "adam"},
        "trainer.keep_best": "accuracy",
    }
    found, _ = settling.with_hyperparameters(declared, {"train_args": "{}"}, tuned(values))
    assert [each.dict() for each in found.trainer.augment] == [
        {"random_flip": {"mode": "horizontal"}},
        {"random_crop": {"padding": 3, "fill": "zero"}},
    ]
    assert found.trainer.class_weights[8] == 2.5
    assert found.trainer.optimizer.name == "adam"
    # Short forms of a declaration are expanded.
    assert found.declaration["trainer"]["keep_best"]["metric"] == "accuracy"
    again, _ = settling.with_hyperparameters(found, {"train_args": "{}"}, tuned({"trainer.augment": []}))
    assert again.trainer.augment == ()
    assert len(declared.trainer.augment) == 2


def test_without_a_tuner_or_a_declaration_nothing_changes(settings, tuned):
    declared, properties = settings(), {"train_args": "{}"}
    assert settling.with_hyperparameters(declared, properties, []) == (declared, properties)
    assert settling.with_hyperparameters(declared, properties, tuned({"units": 3})) == (declared, properties)
    own = Settings()
    assert settling.with_hyperparameters(own, properties, tuned({"trainer.seed": 3})) == (own, properties)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"trainer.seed.x": 3}, "trainer.seed holds 42, and has no keys of its own"),
        ({"trainer.augment.0.cutout.size": 3}, r"trainer.augment holds \[\], and has no item 0"),
        ({"trainer.optimizer.learning_rate": 1e30}, "trainer.optimizer.learning_rate: the value is out of range"),
        (
            {"trainer.optimizer.warmup_steps": 50, "trainer.train_steps": 40},
            r"with these values, trainer.optimizer.warmup_steps: .*",
        ),
    ],
)
def test_unknown_or_incompatible_values_are_refused(settings, tuned, values, message):
    with pytest.raises(DeclarationError, match=message):
        settling.with_hyperparameters(settings(), {"train_args": "{}"}, tuned(values))
