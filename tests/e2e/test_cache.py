"""Which components run again and which do not, counted in ML Metadata over several runs."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.e2e.conftest import open_metadata
from tests.examples import copy_example, edit
from tests.folders import GARBLED, contents, flip, write_files
from tfx_estimator.pipeline.run.runs import list_runs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

FIRST = ("TfdsExampleGen", "ImageSchemaGen", "StatisticsGen", "ExampleValidator")
LAST = ("Evaluator", "Pusher")
# It reads a file in C, when it is called.
NETWORK = """
from pathlib import Path

import h5py
import tensorflow as tf
from layers import hidden


def network(num_classes, units):
    layers = tf.keras.layers
    with h5py.File(Path(__file__).with_name("gain.h5")) as file:
        gain = float(file["gain"][()])
    return tf.keras.Sequential([layers.Flatten(), hidden(units), layers.Dense(num_classes), layers.Rescaling(gain)])
"""
# Files of TensorFlow and SQLite, which have checksums, or journals, of their own.
OTHERS = ("model.ckpt*", "events.*", "graph.pbtxt", "saved_model.pb", "variables.*", "metadata.sqlite*")


@pytest.fixture
def workdir(forked):
    return forked


def garble(home: Path, how: str) -> set[str]:
    """Garbles what runs have left, but published files, which have checksums, and OTHERS; returns their suffixes."""
    published = [Path(each.uri) for each in open_metadata(home).get_artifacts() if "files" in each.custom_properties]
    found = [
        path
        for path in home.rglob("*")
        if path.is_file()
        and not any(folder in path.parents for folder in (*published, home / "serving"))
        and not any(path.match(pattern) for pattern in OTHERS)
    ]
    for path in found:
        path.write_bytes(GARBLED[how](path.read_bytes()))
    return {path.suffix for path in found}


def reasons_of(workdir) -> dict[str, str]:
    return {each["node"]: each["reason"] for each in workdir.summary("own-network")["components"] if each["reason"]}


def write_gain(folder: Path, value: float) -> None:
    with h5py.File(folder / "gain.h5", "w") as file:
        file["gain"] = value


def test_only_what_changed_runs_again(workdir, tmp_path):
    folder = copy_example("own-network", tmp_path)
    declaration = str(folder / "own-network.yaml")
    edit(folder / "own-network.yaml", "train_steps: 200", "train_steps: 60")
    edit(folder / "own-network.yaml", "min_accuracy: 0.85", "min_accuracy: 0.3, max_accuracy_drop: null")
    write_files(folder, {"network.py": NETWORK})
    edit(folder / "scaling.py", "import tensorflow as tf\n", "import numpy as np\nimport tensorflow as tf\n")
    edit(folder / "scaling.py", "255.0", f"np.load({str(folder / 'scale.npy')!r})[0]")
    np.save(folder / "scale.npy", [255.0])
    write_gain(folder, 1.0)
    workdir.run(declaration)
    assert set(workdir.states("own-network").values()) == {"ran", "resolved"}
    first = workdir.summary("own-network")

    # Nothing of this depends on records that a power failure has garbled.
    assert garble(workdir.path / "own-network", "empty") >= {".json", ".jsonl", ".yaml", ".moved"}
    assert [(each.name, each.state) for each in list_runs(str(workdir.path))] == [("own-network", None)]
    served = contents(Path(first["pushed"]))
    flip(Path(first["pushed"]) / "saved_model.pb")
    workdir.run(declaration)
    states = workdir.states("own-network")
    assert states.pop("BaselineResolver") == "resolved"
    assert states.pop("Pusher") == "ran"
    assert set(states.values()) == {"cached"}
    assert workdir.summary("own-network")["accuracy"] == first["accuracy"]
    assert contents(Path(workdir.summary("own-network")["pushed"])) == served

    garble(workdir.path / "own-network", "another value")
    # A module that the model imports: TFX itself sees only the name of a dotted path.
    # A failing model leaves no outputs, and the components before it do not run again.
    edit(folder / "layers.py", "return", "raise ValueError('no such layer')  # ")
    output = workdir.run(declaration, code=5)
    assert "ValueError: no such layer" in output
    assert "layers.py" in output
    states = workdir.states("own-network")
    assert {node: states[node] for node in (*FIRST, "Transform")} == dict.fromkeys((*FIRST, "Transform"), "cached")
    assert states["Trainer"] == "failed"

    edit(folder / "layers.py", "raise ValueError('no such layer')  # ", "return")
    np.save(folder / "scale.npy", [127.5])
    write_gain(folder, 0.0)
    garble(workdir.path / "own-network", "cut")
    workdir.run(declaration, "--rerun", "ExampleValidator")
    reasons = reasons_of(workdir)
    assert (reasons["Transform"], reasons["Trainer"]) == ("scale.npy changed", "gain.h5 changed; new transform_graph")
    assert reasons["ExampleValidator"] == "--rerun"
    states = workdir.states("own-network")
    assert {node for node, state in states.items() if state == "ran"} == {
        "ExampleValidator",
        "Transform",
        "Trainer",
        *LAST,
    }
    # Without gain all logits are 0; cached, it would be the first model.
    last = workdir.summary("own-network")
    assert last["accuracy"] < 0.2 < 0.6 < first["accuracy"]
    assert not last["blessed"]

    counts = workdir.executions("own-network")
    for node in FIRST:
        again = node == "ExampleValidator"
        assert counts[node] == {"COMPLETE": 1 + again, "CACHED": 3 - again}, node
    assert counts["Transform"] == {"COMPLETE": 2, "CACHED": 2}
    assert counts["Trainer"] == {"COMPLETE": 2, "CACHED": 1, "FAILED": 1}
    assert counts["Evaluator"] == {"COMPLETE": 2, "CACHED": 1}
    assert counts["Pusher"] == {"COMPLETE": 3}
    assert len(list((workdir.path / "own-network" / "serving").iterdir())) == 2
