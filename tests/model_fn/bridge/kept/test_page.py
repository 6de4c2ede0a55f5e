"""What docs/estimator.md says of the way out of an Estimator, run as it stands there."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import PAGES

pytestmark = pytest.mark.e2e
PAGE = next(each for each in PAGES if each.name == "docs/estimator.md")
REPLICAS = """
import tensorflow as tf
from converted import network

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice())
with strategy.scope():
    model = network.Training()
data = tf.data.Dataset.from_tensor_slices(({"x": [[0.1], [0.7], [0.4], [0.9]]}, [0, 1, 0, 1])).batch(4)
model.fit(data.repeat(10), verbose=0)
print(int(model.get_weights()[0]))
"""


def test_the_page_leaves_an_estimator(
    tf: Any, processes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    from tfx_estimator.__main__ import main

    # Before the verb sets a folder for temporary files.
    process = processes("0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in PAGE.files.items():
        (tmp_path / name).write_text(text)
    import train  # type: ignore[import-not-found]

    estimator, input_fn, _ = train.made()
    estimator.train(input_fn)
    (command,) = (line for block in PAGE.of("sh") for line in block.text.splitlines() if "convert" in line)
    assert main(shlex.split(command)[1:]) == 0
    assert "20 more steps" in capfd.readouterr().out
    assert json.loads(Path("converted/proof.json").read_text())["step"] == 30
    process.run(str(tmp_path / "go_on.py"))
    assert (tmp_path / "training.keras").exists()
    (tmp_path / "replicas.py").write_text(REPLICAS)
    assert process.run(str(tmp_path / "replicas.py")) == "40"
