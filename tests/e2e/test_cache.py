"""Which components run again and which do not, counted in ML Metadata over several runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import open_metadata
from tests.examples import copy_example, edit
from tests.folders import GARBLED, contents, flip
from tfx_estimator.pipeline.run.runs import list_runs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

FIRST = ("TfdsExampleGen", "ImageSchemaGen", "StatisticsGen", "ExampleValidator")
LAST = ("Evaluator", "Pusher")


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


def test_only_what_changed_runs_again(workdir, tmp_path):
    folder = copy_example("own-network", tmp_path)
    declaration = str(folder / "own-network.yaml")
    edit(folder / "own-network.yaml", "train_steps: 200", "train_steps: 60")
    edit(folder / "own-network.yaml", "min_accuracy: 0.85", "min_accuracy: 0.3, max_accuracy_drop: null")
    workdir.run(declaration)
    assert set(workdir.states("own-network").values()) == {"ran", "resolved"}
    first = workdir.summary("own-network")

    # Nothing of this depends on records that a power failure has garbled.
    assert garble(workdir.path / "own-network", "empty") >= {".json", ".jsonl", ".yaml", ".moved"}
    assert [(each.name, each.state) for each in list_runs(str(workdir.path))] == [("own-network", None)]
    workdir.run(declaration)
    assert {state for node, state in workdir.states("own-network").items() if node != "BaselineResolver"} == {"cached"}
    assert workdir.summary("own-network")["accuracy"] == first["accuracy"]
    assert workdir.summary("own-network")["pushed"] == first["pushed"]

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
    edit(folder / "scaling.py", "255.0", "127.5")
    garble(workdir.path / "own-network", "cut")
    workdir.run(declaration)
    states = workdir.states("own-network")
    assert {node: states[node] for node in FIRST} == dict.fromkeys(FIRST, "cached")
    assert {node: states[node] for node in ("Transform", "Trainer", *LAST)} == dict.fromkeys(
        ("Transform", "Trainer", *LAST), "ran"
    )

    counts = workdir.executions("own-network")
    for node in FIRST:
        assert counts[node] == {"COMPLETE": 1, "CACHED": 3}, node
    assert counts["Transform"] == {"COMPLETE": 2, "CACHED": 2}
    assert counts["Trainer"] == {"COMPLETE": 2, "CACHED": 1, "FAILED": 1}
    for node in LAST:
        assert counts[node] == {"COMPLETE": 2, "CACHED": 1}, node
    versions = workdir.path / "own-network" / "serving"
    assert len(list(versions.iterdir())) == 2

    pushed = Path(workdir.summary("own-network")["pushed"])
    served = contents(pushed)
    flip(pushed / "saved_model.pb")
    workdir.run(declaration)
    states = workdir.states("own-network")
    assert {node: state for node, state in states.items() if state != "cached"} == {
        "BaselineResolver": "resolved",
        "Pusher": "ran",
    }
    assert contents(Path(workdir.summary("own-network")["pushed"])) == served
    assert len(list(versions.iterdir())) == 3
