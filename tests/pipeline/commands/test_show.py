"""`tfx-estimator show` and `validate`."""

from __future__ import annotations

import json

import pytest
import yaml

from tfx_estimator.__main__ import main
from tfx_estimator.pipeline import presets
from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit


def test_shows_every_value_with_its_origin_aligned(capsys):
    assert main(["show", "mnist", "--set", "trainer.seed=7"]) == 0
    text = capsys.readouterr().out
    assert yaml.safe_load(text) == json.loads(load("mnist", ["trainer.seed=7"]).declaration.to_json())
    rows = [line for line in text.splitlines() if "  # " in line]
    assert len({row.index("  # ") for row in rows}) == 1
    assert any(row.split("  # ") == [row.split("  # ")[0], "--set"] and "seed: 7" in row for row in rows)
    assert any("dataset: mnist" in row and "# preset mnist:" in row for row in rows)


def test_json(capsys):
    assert main(["show", "digits", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["declaration"]["data"]["shards"] == 2
    assert shown["origins"]["data.shards"].startswith("preset digits:")
    assert shown["source"] == "digits"
    assert shown["file"].endswith("digits.yaml")


@pytest.mark.parametrize(
    ("train", "text"),
    [
        ("mirrored:4", "at most 0.2 (0.05 times 4 replicas)"),
        ("multi_worker_mirrored:2", "at most 0.1 (0.05 times 2 replicas), and more where there are"),
        ("one_device", "at most 0.05 (0.05 times 1 replica)"),
    ],
)
def test_a_scaled_learning_rate_is_shown_with_its_largest_value(capsys, train, text):
    values = (f"distribution.train={train}", "optimizer.scaling=linear", "optimizer.learning_rate=0.05")
    assert main(["show", "mnist", *(part for value in values for part in ("--set", f"trainer.{value}"))]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "    learning_rate:" in line)
    assert text in row


def test_the_modules_that_key_transform_and_the_trainer(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shown_model.py").write_text("import shown_layers\ndef network(num_classes): ...\n")
    (tmp_path / "shown_layers.py").write_text("WIDTH = 1\n")
    arguments = ["show", "digits", "--fingerprint", "--set", "trainer.model=shown_model:network"]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    trainer = found["Trainer"]["modules"]
    assert trainer["shown_layers"] == str(tmp_path / "shown_layers.py")
    assert "tfx_estimator.model_fn.step.classifier" in trainer
    assert "tfx_estimator.components.trainer.cluster.private_network" not in trainer
    assert sorted(found["Transform"]["modules"]) == [
        "tfx_estimator.data",
        "tfx_estimator.data.features",
        "tfx_estimator.data.preprocessing",
    ]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"Trainer  {found['Trainer']['sha256']}" in lines
    assert ["shown_model", str(tmp_path / "shown_model.py")] in [line.split() for line in lines]

    (tmp_path / "shown_layers.py").write_text("WIDTH = 2\n")
    main([*arguments, "--json"])
    changed = json.loads(capsys.readouterr().out)
    assert changed["Trainer"]["sha256"] != found["Trainer"]["sha256"]
    assert changed["Transform"] == found["Transform"]


def test_the_hash_that_is_shown_is_the_one_in_the_key(tmp_path, capsys):
    from tfx_estimator.components.trainer.settings import Settings
    from tfx_estimator.pipeline.build import create_pipeline
    from tfx_estimator.pipeline.folders import PipelineFolders

    main(["show", "digits", "--fingerprint", "--json"])
    shown = json.loads(capsys.readouterr().out)
    built = create_pipeline(load("digits").declaration, PipelineFolders(str(tmp_path), "digits"))
    properties = {node.id: node.exec_properties for node in built.components}
    assert Settings.of(properties["Trainer"]).source == shown["Trainer"]["sha256"]
    assert json.loads(properties["Transform"]["custom_config"])["source"] == shown["Transform"]["sha256"]


def test_good_declarations_are_summarised(capsys):
    assert main(["validate", *presets.names(), "--set", "trainer.train_steps=1234"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(presets.names())
    assert lines[0].startswith("ok: digits: digits -> mnist_cnn, 1,234 steps of 64, one_device, ")


@pytest.mark.parametrize(
    ("distribution", "text"),
    [
        ("{train: {strategy: mirrored, devices: {cpu: 2}}}", "mirrored on 2 logical CPUs"),
        ("{train: {strategy: multi_worker_mirrored, workers: 4}}", "multi_worker_mirrored with 4 workers, blessed"),
        (
            "{train: {strategy: parameter_server}, evaluator: true}",
            "parameter_server with 2 workers and 1 ps and an evaluator, blessed",
        ),
    ],
)
def test_a_distribution_is_shown(capsys, distribution, text):
    assert main(["validate", "mnist", "--set", f"trainer.distribution={distribution}"]) == 0
    assert text in capsys.readouterr().out


def test_one_bad_declaration_among_good_ones(tmp_path, capsys):
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: x\n")
    assert main(["validate", "mnist", str(bad), "digits"]) == 2
    found = capsys.readouterr()
    assert found.out.count("ok: ") == 2
    assert f"{bad} has 2 problems" in found.err


def test_a_partial_declaration_is_refused_with_the_command_that_merges_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("trainer: {seed: 7}\n")
    (tmp_path / "whole.yaml").write_text(presets.path("digits").read_text() + "wrong: 1\n")
    assert main(["validate", "digits", "whole.yaml", "mine.yaml"]) == 2
    (hint,) = (line for line in capsys.readouterr().err.splitlines() if "merge it over" in line)
    command = hint.partition("tfx-estimator ")[2].split()
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("ok: digits+mine.yaml: ")
    assert main(["validate", "mine.yaml"]) == 2
    assert "merge it over" not in capsys.readouterr().err
