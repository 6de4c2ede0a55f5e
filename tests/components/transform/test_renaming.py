"""A folder that TensorFlow has taken for a file is renamed after all."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tfx_estimator.components.transform.executor import renamed_again

pytestmark = pytest.mark.unit


@pytest.fixture
def failing(monkeypatch):
    """Makes the first renames fail as those of a bucket do; returns how many are still to."""
    left = [0]
    rename = tf.io.gfile.rename

    def fail(src, dst, overwrite=False):
        if left[0]:
            left[0] -= 1
            raise tf.errors.NotFoundError(None, None, f"404 when renaming {src} to {dst}")
        rename(src, dst, overwrite)

    monkeypatch.setattr(tf.io.gfile, "rename", fail)
    return left


@pytest.mark.parametrize(("times", "renamed"), [(0, True), (1, True), (3, True), (4, False)])
def test_a_folder_that_is_there_is_renamed_again(tmp_path, failing, times, renamed):
    (tmp_path / "made" / "inner").mkdir(parents=True)
    (tmp_path / "made" / "inner" / "graph").write_text("graph")
    failing[0] = times
    with renamed_again():
        if renamed:
            tf.io.gfile.rename(str(tmp_path / "made"), str(tmp_path / "published"), overwrite=True)
        else:
            with pytest.raises(tf.errors.NotFoundError):
                tf.io.gfile.rename(str(tmp_path / "made"), str(tmp_path / "published"), overwrite=True)
    assert (tmp_path / "published" / "inner" / "graph").exists() is renamed


def test_what_is_not_there_is_told_at_once(tmp_path, failing):
    failing[0] = 2
    before = tf.io.gfile.rename
    with renamed_again(), pytest.raises(tf.errors.NotFoundError):
        tf.io.gfile.rename(str(tmp_path / "nothing"), str(tmp_path / "published"))
    assert failing == [1]
    assert tf.io.gfile.rename is before
