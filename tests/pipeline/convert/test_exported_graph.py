"""The SavedModel whose graph is kept, and the examples to compare it on, are found or asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from tfx_estimator.pipeline.base.errors import DeclarationError, UserCodeError
from tfx_estimator.pipeline.convert.exported_graph import keep


def test_the_newest_version_of_a_folder_is_kept_on_named_examples(tmp_path: Path) -> None:
    for version in ("9", "10"):
        tf.saved_model.save(tf.Module(), str(tmp_path / "versions" / version))
    (tmp_path / "examples").touch()
    kept, examples = str(tmp_path / "kept"), str(tmp_path / "examples")
    with pytest.raises(DeclarationError, match="a SavedModel alone, without evaluation examples"):
        keep(str(tmp_path / "versions"), kept)
    with pytest.raises(UserCodeError, match="versions/10 was saved by TensorFlow 2"):
        keep(str(tmp_path / "versions"), kept, examples)
    with pytest.raises(DeclarationError, match="there is no such folder"):
        keep(str(tmp_path / "nothing"), kept, examples)
    assert not Path(kept).exists()
