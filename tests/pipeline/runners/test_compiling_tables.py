"""Tables of files in a bucket or volume, compiled for services."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.pipeline.runners.deployed import COMMON, OF_TARGET, words
from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.platforms.registry import TARGETS

_TABLE = """\
name: rows
data: {KEY: PLACE, label: y, schema: gs://bucket/schema.pbtxt, task: binary}
trainer: {model: linear, train_steps: 50}
"""
STEPS = {"csv": "CsvExampleGen", "parquet": "ParquetExampleGen", "tfrecord": "ImportExampleGen"}


def _declare(folder: Path, key: str, place: str) -> str:
    (folder / "rows.yaml").write_text(_TABLE.replace("KEY", key).replace("PLACE", place))
    return str(folder / "rows.yaml")


@pytest.mark.parametrize("key", STEPS)
def test_a_service_reads_the_files_by_the_format_s_own_step(tmp_path: Path, key: str) -> None:
    declaration, output = _declare(tmp_path, key, "/mnt/data/days"), tmp_path / "out"
    sets = words(*COMMON, *OF_TARGET["kubeflow"])
    assert main(["compile", declaration, "--target", "kubeflow", "--output", str(output), *sets]) == 0
    (compiled, *_) = yaml.safe_load_all(output.read_text())
    spec = compiled.get("pipelineSpec", compiled)
    given = spec["root"]["dag"]["tasks"][STEPS[key]]["inputs"]["parameters"]
    values = {name: (each.get("runtimeValue") or {}) for name, each in given.items()}
    assert "/mnt/data/days" in str(values["input_base"])
    assert {"csv": "*.csv", "parquet": "*.parquet", "tfrecord": "*tfrecord*"}[key] in str(values["input_config"])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("key", STEPS)
def test_a_service_takes_files_in_a_bucket_with_their_schema_and_task(tmp_path: Path, key: str, target: str) -> None:
    sets = [*COMMON, *OF_TARGET[target]]
    assert load(_declare(tmp_path, key, "gs://bucket/days"), sets, target).declaration.data.task == "binary"
    for place, more, why in (
        (str(tmp_path), [], "the steps run elsewhere"),
        ("gs://bucket/days", ["data.schema=null"], "a table that is not on this machine is not read here"),
    ):
        with pytest.raises(DeclarationError, match=rf"(?s)data\.{key}: .*{why}"):
            load(_declare(tmp_path, key, place), [*sets, *more], target)
