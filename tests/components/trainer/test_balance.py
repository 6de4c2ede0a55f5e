"""Balanced classes: what is counted, and the weights that follow."""

from __future__ import annotations

import pytest

from tfx_estimator.components.trainer.balance import balanced, count_labels, with_weights
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.base.errors import DamagedDataError, DeclarationError

pytestmark = pytest.mark.unit


@pytest.fixture
def examples(tmp_path):
    """Makes an Examples artifact with these labels, in two files."""
    import tensorflow as tf
    from tfx.types import artifact_utils, standard_artifacts

    def make(*labels: int, name: str = "label"):
        folder = tmp_path / "Split-train"
        folder.mkdir()
        for number in range(2):
            with tf.io.TFRecordWriter(str(folder / f"data_tfrecord-{number:05d}-of-00002")) as writer:
                for label in labels[number::2]:
                    value = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
                    features = tf.train.Features(feature={name: value})
                    writer.write(tf.train.Example(features=features).SerializeToString())
        artifact = standard_artifacts.Examples()
        artifact.uri = str(tmp_path)
        artifact.split_names = artifact_utils.encode_split_names(["train"])
        return artifact

    return make


def test_each_class_counts_as_much_and_all_examples_as_many():
    counts = {0: 60, 2: 30, 3: 10}
    weights = balanced(counts, 4)
    assert weights == pytest.approx((100 / 180, 1.0, 100 / 90, 100 / 30))
    assert [weights[label] * count for label, count in counts.items()] == pytest.approx([100 / 3] * 3)


def test_the_labels_of_all_files_are_counted(examples):
    assert count_labels([examples(0, 1, 1, 1, 2, 1, 1)]) == {0: 1, 1: 5, 2: 1}


def test_the_word_becomes_weights_and_these_are_told(examples, declaration, caplog):
    caplog.set_level("INFO", "absl.tfx_estimator")
    settings = Settings(declaration=declaration(class_weights="balanced"), label_names=("cat", "dog", "owl"))
    assert settings.trainer.class_weights == "balanced"
    assert Settings.of(settings.to_properties()).trainer.class_weights == "balanced"
    found = with_weights(settings, lambda: count_labels([examples(0, 1, 1, 1)]))
    assert found.trainer.class_weights == pytest.approx((2.0, 2 / 3, 1.0))
    assert caplog.messages == [
        "trainer.class_weights: balanced: cat 2 (of 1), dog 0.6667 (of 3), owl 1 (of 0)",
    ]


@pytest.mark.parametrize("weights", [None, [1.0, 2.0]])
def test_others_stay_and_nothing_is_read(declaration, weights):
    settings = Settings(declaration=declaration(class_weights=weights), label_names=("cat", "dog"))
    assert with_weights(settings, pytest.fail) is settings


@pytest.mark.parametrize(
    ("labels", "name", "said"),
    [
        ([0, 5], "label", "the label 5, of 2 classes"),
        ([0, -1], "label", "the label -1, of 2 classes"),
        ([0, 1], "other", "no label"),
    ],
)
def test_what_cannot_be_balanced_is_refused(examples, declaration, labels, name, said):
    settings = Settings(declaration=declaration(class_weights="balanced"), label_names=("cat", "dog"))
    with pytest.raises(DeclarationError, match=said):
        with_weights(settings, lambda: count_labels([examples(*labels, name=name)]))


def test_a_file_that_ends_within_a_record_is_named(examples, tmp_path):
    artifact = examples(0, 1, 1)
    file = tmp_path / "Split-train" / "data_tfrecord-00001-of-00002"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(DamagedDataError, match="00001-of-00002"):
        count_labels([artifact])


def test_a_damaged_length_is_not_read(examples, tmp_path):
    artifact = examples(0, 1, 1)
    file = tmp_path / "Split-train" / "data_tfrecord-00001-of-00002"
    file.write_bytes((2**62).to_bytes(8, "little") + file.read_bytes()[8:])
    with pytest.raises(DamagedDataError, match="00001-of-00002"):
        count_labels([artifact])


def test_a_record_that_is_not_what_was_written_is_not_counted(examples, tmp_path):
    artifact = examples(0, 1, 1)
    file = tmp_path / "Split-train" / "data_tfrecord-00001-of-00002"
    written = file.read_bytes()
    # The label, before the checksum at the end.
    file.write_bytes(written[:-5] + bytes([written[-5] ^ 1]) + written[-4:])
    with pytest.raises(DamagedDataError, match="00001-of-00002: corrupted record"):
        count_labels([artifact])


def test_the_labels_are_counted_once_for_all_trials_of_a_tuning(examples, tmp_path, monkeypatch, caplog):
    from tfx_estimator.components.tuner import training

    read: list[str] = []
    monkeypatch.setattr(training, "count_labels", lambda found: read.append("") or count_labels(found))
    trials = training.Trials(str(tmp_path), {"examples": [examples(0, 1, 1)]}, {}, Settings(), None)
    assert [trials._labels for _ in range(2)] == [{0: 1, 1: 2}] * 2
    assert len(read) == 1
    assert not caplog.messages
