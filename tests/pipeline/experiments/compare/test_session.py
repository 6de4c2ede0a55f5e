"""Comparisons in which a candidate fails or a signal arrives; trainings and predictions are made up."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.base.ending.signals import SignalledError
from tfx_estimator.pipeline.experiments import training
from tfx_estimator.pipeline.experiments.compare import judge, session
from tfx_estimator.pipeline.experiments.compare.answers import Answers
from tfx_estimator.pipeline.experiments.compare.candidates import find_candidates
from tfx_estimator.pipeline.report.artifacts import Output
from tfx_estimator.pipeline.report.examples import DataSet

LABELS = np.array([0, 1, 1, 0])


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_terminal: None) -> Callable[..., Any]:
    """Compares three candidates without training; those in `failing` raise."""
    made = tmp_path / "made"
    made.mkdir()
    outputs = {
        (node, name): Output(str(made), {}) for node, name in (("Trainer", "model_run"), ("TfdsExampleGen", "examples"))
    }
    monkeypatch.setattr(judge, "open_data", lambda _: DataSet("own", (1, 1, 1), ["a", "b"], {}, {}))

    monkeypatch.setattr(
        session, "answer", lambda *_: Answers(LABELS, np.eye(2)[LABELS], "probabilities", model_bytes=1, parameters=1)
    )

    def run(failing: dict[str, BaseException], *options: str) -> Any:
        def trained(loaded: Any, *_: Any) -> Any:
            if error := failing.get(f"seed={loaded.declaration.trainer.seed}"):
                raise error
            return outputs

        monkeypatch.setattr(training, "train", trained)
        places = ("--workdir", str(tmp_path / "runs"), "--output", str(tmp_path / "results"))
        if options:
            return main(["compare", "digits", *places, *options])
        candidates = find_candidates(["digits"], [], ["trainer.seed=1,2,3"])
        found, failure = session.compare(candidates, places[1], places[3])
        if failure is not None:
            raise failure
        return found

    return run


def read(folder: Path) -> dict[str, Any]:
    assert sorted(path.name for path in (folder / "results").iterdir()) == ["compare.html", "compare.json"]
    return json.loads((folder / "results" / "compare.json").read_text())


def test_a_candidate_that_fails_does_not_hide_the_others(tmp_path, compare):
    with pytest.raises(errors.TaskFailedError, match="seed=2: it burns"):
        compare({"seed=2": errors.TaskFailedError("it burns")})
    record = read(tmp_path)
    assert list(record["candidates"]) == ["seed=1", "seed=3"]
    assert list(record["pairs"]) == ["seed=3"]
    assert record["failures"] == {"seed=2": "it burns"}
    assert "it burns" in (tmp_path / "results" / "compare.html").read_text()


@pytest.mark.parametrize("seed", ["seed=2", "seed=3", "none"])
def test_the_other_candidates_are_printed_as_json_if_one_fails(tmp_path, compare, capsys, seed):
    code = compare({seed: errors.TaskFailedError("it burns")}, "--vary", "trainer.seed=1,2,3", "--json")
    out, err = capsys.readouterr()
    assert json.loads(out) == read(tmp_path)
    assert (code != 0) == (f"{seed}: it burns" in err) == (seed in json.loads(out)["failures"]) == (seed != "none")


def test_seeds_are_reported_together_and_a_failing_seed_excludes_its_candidate(tmp_path, compare, capsys):
    options = ("--vary", "trainer.seed=1,11,21", "--repeat", "2", "--json")
    code = compare({"seed=12": errors.TaskFailedError("it burns")}, *options)
    out, err = capsys.readouterr()
    assert code == 5
    assert "seed=11: seed 12: it burns" in err
    record = json.loads(out)
    assert list(record["candidates"]) == ["seed=1", "seed=21"]
    assert [each["seed"] for each in record["candidates"]["seed=21"]["replicates"]] == [21, 22]
    assert record["conclusions"][0].startswith("No difference found between seed=21 and seed=1")
    # The made-up trainings do not depend on the seed.
    assert sum("the same under every seed" in note for note in record["notes"]) == 2


@pytest.mark.parametrize("failing", [["seed=1"], ["seed=2", "seed=3"]])
def test_without_the_base_or_with_only_one_candidate_there_is_no_comparison(tmp_path, compare, failing):
    with pytest.raises(errors.TaskFailedError, match="it burns"):
        compare({name: errors.TaskFailedError("it burns") for name in failing})
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.StoppedError("stopped", exit_code=143), errors.StoppedError),
        (SignalledError(signal.SIGINT), SignalledError),
    ],
)
def test_a_signal_ends_the_comparison(tmp_path, compare, error, kind):
    with pytest.raises(kind):
        compare({"seed=2": error})
    assert not (tmp_path / "results").exists()


def test_an_error_of_a_library_is_reported_for_its_candidate(tmp_path, compare):
    with pytest.raises(
        errors.UserCodeError, match="seed=3: building the pipeline failed in your code: RuntimeError: what now"
    ):
        compare({"seed=3": RuntimeError("what now")})
    assert "what now" in read(tmp_path)["failures"]["seed=3"]


def test_one_example_has_null_for_undefined_intervals(tmp_path, compare, monkeypatch):
    monkeypatch.setitem(globals(), "LABELS", LABELS[:1])
    compare({})
    record = read(tmp_path)
    assert record["candidates"]["seed=1"]["loss"] == {"value": 0, "low": None, "high": None}
    assert record["pairs"]["seed=2"]["loss"] == {"value": 0, "low": None, "high": None}
    assert any("A mean loss of one example has no interval." in note for note in record["notes"])
    assert list(record["candidates"]) == ["seed=1", "seed=2", "seed=3"]
    assert (record["base"], record["spread_points"]) == ("seed=1", 0)
