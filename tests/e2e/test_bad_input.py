"""Wrong input: an exit code and a message, never a traceback."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.conftest import Finished, ForkedWorkdir

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def ingested(digits_run: Finished, forks) -> ForkedWorkdir:
    """The folder of that run, for declarations of the same name: common components are cached."""
    return ForkedWorkdir(digits_run.workdir.path, forks)


@pytest.fixture
def declare(tmp_path: Path):
    def write(name: str = "bad", **sections) -> str:
        declaration = {
            "name": name,
            "data": {"dataset": "digits", "splits": {"train": "train[:80%]", "eval": "train[80%:]"}, "shards": 2},
            "trainer": {"model": "mnist_cnn", "train_steps": 20},
        }
        for section, values in sections.items():
            declaration.setdefault(section, {}).update(values)
        path = tmp_path / "bad.yaml"
        path.write_text(json.dumps(declaration))
        return str(path)

    return write


def test_a_wrong_declaration_ends_with_2_and_names_every_error(workdir, declare):
    output = workdir.run(declare(data={"shard": 3}, trainer={"train_steps": -1, "global_batch_sise": 8}), code=2)
    for text in ("data.shard", "shards", "trainer.train_steps", "trainer.global_batch_sise", "global_batch_size"):
        assert text in output
    assert not (workdir.path / "bad").exists()


def test_an_unknown_config_of_a_data_set_ends_with_3(forked, declare):
    output = forked.run(declare(data={"dataset": "emnist/lettres"}), code=3)
    assert "no config 'lettres'" in output
    assert "letters" in output


def test_a_file_found_damaged_in_a_worker_is_named_and_leaves_no_artifact(forked, declare, tmp_path):
    folder = tmp_path / "cifar"
    folder.mkdir()
    records = np.zeros((40, 3073), np.uint8)
    (folder / "test_batch.bin").write_bytes(records.tobytes())
    # In the second shard, after the first is written. Neither length nor header shows the damage.
    records[33, 0] = 99
    (folder / "data_batch_1.bin").write_bytes(records.tobytes())
    output = forked.run(declare(data={"dataset": str(folder), "splits": {"train": "train", "eval": "test"}}), code=3)
    assert "data_batch_1.bin: example 33 has the label 99" in output
    # The executor ran, and no component after it.
    assert forked.executions("bad") == {"TfdsExampleGen": {"FAILED": 1}}
    assert not list((forked.path / "bad" / "artifacts").glob("TfdsExampleGen/examples/*/Split-*/*"))


def test_a_truncated_idx_file_is_named_before_anything_starts(forked, declare, tmp_path):
    folder = tmp_path / "idx"
    folder.mkdir()
    for split in ("train", "t10k"):
        (folder / f"{split}-images-idx3-ubyte").write_bytes(
            struct.pack(">IIII", 0x803, 40, 28, 28) + bytes(40 * 784 - 9)
        )
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, 40) + bytes(40))
    output = forked.run(declare(data={"dataset": str(folder), "splits": {"train": "train", "eval": "test"}}), code=3)
    assert "train-images-idx3-ubyte" in output
    assert not (forked.path / "bad" / "artifacts").exists()
    left = forked.summary("bad")
    assert (left["state"], left["exit_code"], left["components"]) == ("failed", 3, [])
    assert left["error"]["type"] == "DamagedDataError"


def test_a_network_that_does_not_fit_its_images_is_reported_with_its_line(ingested, declare, tmp_path):
    # A 28x28 image is too small for five poolings.
    network = (
        "from tfx_estimator.model_fn.layers import PooledConv2D\nimport tensorflow as tf\n\ndef network(num_classes):\n"
    )
    network += "    return tf.keras.Sequential([PooledConv2D(8, 3) for _ in range(5)])\n"
    (tmp_path / "wrong.py").write_text(network)
    output = ingested.run(declare("digits", trainer={"model": "wrong:network"}), "--report", code=4)
    assert "Negative dimension size" in output
    assert 'wrong.py", line 5, in network' in output
    left = ingested.summary("digits")
    assert (left["state"], left["exit_code"], left["error"]["type"]) == ("failed", 4, "UserCodeError")
    assert "Negative dimension size" in left["error"]["what"]
    states = ingested.states("digits")
    assert (states["Transform"], states["Trainer"], states["Evaluator"]) == ("cached", "failed", "not reached")
    assert left["examples"] == {"train": 1438, "eval": 359}
    assert left["model_run"] is left["blessed"] is None
    assert (Path(left["training_folder"]) / "logs" / "chief-0.attempt-1.log").exists()
    # Its report has the error, and the outputs before it.
    (report,) = (line.split()[1] for line in output.splitlines() if line.startswith("report "))
    page = Path(report).read_text()
    assert "UserCodeError, exit code 4" in page
    assert "digits 1.0.0: 10 classes" in page
    assert page.count("Left out. Trainer made no model in this run.") == 2
    assert "could not be made" not in page


def test_a_mistake_in_a_preprocessing_fn_is_reported_with_its_line(ingested, declare, tmp_path):
    (tmp_path / "own.py").write_text("def preprocessing_fn(inputs):\n    raise ValueError('my own mistake')\n")
    output = ingested.run(declare("digits", transform={"preprocessing_fn": "own:preprocessing_fn"}), code=4)
    assert "component Transform failed in your code: ValueError: my own mistake" in output
    assert f'File "{tmp_path}/own.py", line 2' in output


def test_a_preprocessing_fn_that_exits_is_named_before_any_data_is_read(forked, declare, tmp_path):
    (tmp_path / "own.py").write_text("def preprocessing_fn(inputs):\n    import os; os._exit(1)\n")
    name = "own:preprocessing_fn"
    output = forked.run(declare(transform={"preprocessing_fn": name}), code=4, dry_run=True)
    assert f"({name} on made-up images of 28x28x1) ended, with exit code 1; your code was running" in output
    assert f'File "{tmp_path}/own.py", line 2' in output
    left = forked.summary("bad")
    assert (left["state"], left["exit_code"], left["error"]["type"]) == ("failed", 4, "UserCodeError")
    assert forked.states("bad") == {}


def test_a_second_run_in_the_same_folder_is_refused(workdir, declare):
    import fcntl

    home = workdir.path / "bad"
    home.mkdir(parents=True)
    with (home / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another run is using" in workdir.run(declare(), code=6)
