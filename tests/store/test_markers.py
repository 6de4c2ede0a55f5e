"""Folder markers of TensorFlow's bucket client are removed, and nothing else."""

from __future__ import annotations

import sys

import pytest

from tests.store.conftest import serving
from tests.store.front import BUCKET

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(300)]

SCRIPT = """
import sys
import tensorflow as tf
from tfx_estimator.pipeline.platforms.kubeflow.step import remove_markers

root = sys.argv[1]
for folder in ("model/Format-Serving/variables", "model/Format-Serving/assets", "model_run", "empty/inner"):
    tf.io.gfile.makedirs(f"{root}/{folder}")
for file in ("model/Format-Serving/saved_model.pb", "model/Format-Serving/variables/it.index", "model_run/notes"):
    with tf.io.gfile.GFile(f"{root}/{file}", "w") as opened:
        opened.write("it")
if len(sys.argv) > 2:
    for output in ("model", "empty", "not-there", "model/"):
        remove_markers(f"{root}/{output}")
    assert tf.io.gfile.isdir(f"{root}/model/Format-Serving")
    assert tf.io.gfile.listdir(f"{root}/model") == ["Format-Serving/"]
"""


def test_markers_are_removed(tmp_path, binary):
    files = ["Format-Serving/saved_model.pb", "Format-Serving/variables/it.index"]
    with serving(tmp_path, binary) as store:
        for root, more in (("with", []), ("without", ["remove"])):
            store.run(sys.executable, "-c", SCRIPT, f"gs://{BUCKET}/{root}", *more)
        before, after = (store.names(f"{root}/") for root in ("with", "without"))
        assert {"with/model/", "with/model/Format-Serving/", "with/model/Format-Serving/assets/"} <= {*before}
        assert [name for name in after if name.startswith("without/model/")] == [
            f"without/model/{each}" for each in files
        ]
        assert [name for name in after if name.startswith("without/empty")] == []
        # Of another output, which is not given.
        assert "without/model_run/" in after
