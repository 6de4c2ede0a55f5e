"""`tfx-estimator validate`."""

from __future__ import annotations

import pytest

from tfx_estimator.__main__ import main
from tfx_estimator.pipeline import presets

pytestmark = pytest.mark.unit


def test_good_declarations_are_summarised(capsys):
    assert main(["validate", *presets.names(), "--set", "trainer.train_steps=1234"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(presets.names())
    assert lines[0].startswith("ok: digits: digits -> mnist_cnn, 1,234 steps of 64, one_device, ")


@pytest.mark.parametrize(
    ("distribution", "said"),
    [
        ("{train: {strategy: mirrored, devices: {cpu: 2}}}", "mirrored on 2 logical CPUs"),
        ("{train: {strategy: multi_worker_mirrored, workers: 4}}", "multi_worker_mirrored with 4 workers, blessed"),
        (
            "{train: {strategy: parameter_server}, evaluator: true}",
            "parameter_server with 2 workers and 1 ps and an evaluator, blessed",
        ),
    ],
)
def test_a_distribution_is_shown(capsys, distribution, said):
    assert main(["validate", "mnist", "--set", f"trainer.distribution={distribution}"]) == 0
    assert said in capsys.readouterr().out


def test_one_bad_declaration_among_good_ones(tmp_path, capsys):
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: x\n")
    assert main(["validate", "mnist", str(bad), "digits"]) == 2
    found = capsys.readouterr()
    assert found.out.count("ok: ") == 2
    assert f"{bad} has 2 problems" in found.err


def test_a_wrong_override_is_shown(capsys):
    assert main(["validate", "mnist", "--set", "trainer.seed=x", "--set", "beam.runner=dask"]) == 2
    text = capsys.readouterr().err
    assert "--set trainer.seed=x" in text
    assert "loses data silently" in text
