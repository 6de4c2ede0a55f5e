"""A table's compiled file, executed on this machine to a blessed and pushed model."""

from __future__ import annotations

import random

import pytest

from tests.e2e.conftest import states_of
from tests.e2e.test_execute import Rehearsal
from tests.folders import write_files
from tfx_estimator.pipeline.platforms.registry import TARGETS

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

_BUCKET = "gs://example-bucket/days"
_DECLARED = f"""\
name: rows
data: {{csv: {_BUCKET}, label: y, schema: {_BUCKET}/schema.pbtxt, task: binary}}
trainer: {{model: wide_deep, train_steps: 150, global_batch_size: 32}}
"""
_SCHEMA = "".join(
    f'feature {{ name: "{name}" type: {kind} presence {{ min_fraction: 1 min_count: 1 }} }}\n'
    for name, kind in (("x", "FLOAT"), ("word", "BYTES"), ("y", "INT"))
)


@pytest.mark.parametrize("target", TARGETS)
def test_a_table_is_executed_from_the_compiled_file(forks, tmp_path, target):
    drawn, rows = random.Random(1), ["x,word,y"]
    for _ in range(900):
        x, word = drawn.gauss(0, 1), drawn.choice("abcd")
        rows.append(f"{x:.4f},{word},{int(x + 2 * (word in 'ab') > 1)}")
    write_files(tmp_path / "days", {"rows.csv": "\n".join(rows) + "\n", "schema.pbtxt": _SCHEMA})
    write_files(tmp_path, {"rows.yaml": _DECLARED})
    rehearsal = Rehearsal(tmp_path, target)
    rehearsal.compile(str(tmp_path / "rows.yaml"))
    # The bucket is a folder of this machine.
    compiled = rehearsal.file.read_text()
    assert _BUCKET in compiled
    rehearsal.file.write_text(compiled.replace(_BUCKET, str(tmp_path / "days")))
    results = rehearsal.execute_forked(forks, "--require-blessing")
    assert {"CsvExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "Transform", "Trainer"} <= {
        name for name, state in states_of(results).items() if state == "ran"
    }
    assert sum(results["examples"].values()) == 900
    assert results["metrics"]["auc"] >= 0.95
    assert results["pushed"]
