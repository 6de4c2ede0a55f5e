"""A Parquet file whose metadata is a pickle: pyarrow would run it."""

from __future__ import annotations

import importlib
import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.root import run_python

# In its own process: if Beam is imported, it protects pyarrow as well.
_READ = """
import sys
from tfx_estimator.data.sources import ExampleRange, open_source
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.base.errors import TfxEstimatorError
try:
    list(open_source(DataSection(dataset=sys.argv[1])).read(ExampleRange("train", 0, 12)))
except TfxEstimatorError as error:
    print(error.exit_code, error.what)
"""


class _Code:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def _table(path, data_dir, make_builder):
    parquet.write_table(pa.table({"image": ["1.png", "2.png"], "label": ["a", "b"]}), path / "labels.parquet")
    return path / "labels.parquet", path / "labels.parquet"


def _prepared(path, data_dir, make_builder):
    module, _, name = make_builder().partition(":")
    builder = getattr(importlib.import_module(module), name)(data_dir=data_dir, file_format="parquet")
    builder.download_and_prepare()
    return builder.data_path, next(Path(builder.data_path).glob("*train.parquet*"))


@pytest.mark.parametrize("make", [_table, _prepared])
def test_no_code_of_a_file_is_run(make, tmp_path, data_dir, make_builder):
    dataset, file = make(tmp_path, data_dir, make_builder)
    whole, ran = parquet.read_table(file), tmp_path / "ran"
    metadata = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickle.dumps(_Code(ran))}
    column = pa.array(["x"] * whole.num_rows)
    parquet.write_table(whole.append_column(pa.field("more", pa.string(), metadata=metadata), column), file)
    done = run_python("-c", _READ, str(dataset))
    assert not ran.exists()
    assert done.stdout.startswith(f"3 damaged file {file}: "), done.stdout + done.stderr
