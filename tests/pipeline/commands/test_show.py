"""`tfx-estimator show` and `validate`."""

from __future__ import annotations

import json

import pytest
import yaml

from tfx_estimator.pipeline import presets
from tfx_estimator.pipeline.config import load


def test_shows_every_value_with_its_origin_aligned(cli):
    text = cli("show", "mnist", "--set", "trainer.seed=7").out
    assert yaml.safe_load(text) == json.loads(load("mnist", ["trainer.seed=7"]).declaration.to_json())
    rows = [line for line in text.splitlines() if "  # " in line]
    assert len({row.index("  # ") for row in rows}) == 1
    assert any(row.split("  # ") == [row.split("  # ")[0], "--set"] and "seed: 7" in row for row in rows)
    assert any("dataset: mnist" in row and "# preset mnist:" in row for row in rows)


def test_json(cli):
    shown = json.loads(cli("show", "digits", "--json").out)
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
def test_a_scaled_learning_rate_is_shown_with_its_largest_value(cli, train, text):
    values = (f"distribution.train={train}", "optimizer.scaling=linear", "optimizer.learning_rate=0.05")
    text_shown = cli("show", "mnist", *(part for value in values for part in ("--set", f"trainer.{value}"))).out
    (row,) = (line for line in text_shown.splitlines() if "    learning_rate:" in line)
    assert text in row


def test_the_modules_that_key_transform_and_the_trainer(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shown_model.py").write_text("import shown_layers\ndef network(num_classes): ...\n")
    (tmp_path / "shown_layers.py").write_text("WIDTH = 1\n")
    arguments = ["show", "digits", "--fingerprint", "--set", "trainer.model=shown_model:network"]
    found = json.loads(cli(*arguments, "--json").out)
    trainer = found["Trainer"]["modules"]
    assert trainer["shown_layers"] == str(tmp_path / "shown_layers.py")
    assert "tfx_estimator.model_fn.step.classifier" in trainer
    assert "tfx_estimator.components.trainer.cluster.private_network" not in trainer
    assert sorted(found["Transform"]["modules"]) == [
        "tfx_estimator.data",
        "tfx_estimator.data.features",
        "tfx_estimator.data.preprocessing",
    ]
    lines = cli(*arguments).out.splitlines()
    assert f"Trainer  {found['Trainer']['sha256']}" in lines
    assert ["shown_model", str(tmp_path / "shown_model.py")] in [line.split() for line in lines]

    (tmp_path / "shown_layers.py").write_text("WIDTH = 2\n")
    changed = json.loads(cli(*arguments, "--json").out)
    assert changed["Trainer"]["sha256"] != found["Trainer"]["sha256"]
    assert changed["Transform"] == found["Transform"]


def test_the_hash_that_is_shown_is_the_one_in_the_key(tmp_path, cli):
    from tfx_estimator.components.trainer.settings import Settings
    from tfx_estimator.pipeline.build import create_pipeline
    from tfx_estimator.pipeline.folders import PipelineFolders

    shown = json.loads(cli("show", "digits", "--fingerprint", "--json").out)
    built = create_pipeline(load("digits").declaration, PipelineFolders(str(tmp_path), "digits"))
    properties = {node.id: node.exec_properties for node in built.components}
    assert Settings.of(properties["Trainer"]).source == shown["Trainer"]["sha256"]
    assert json.loads(properties["Transform"]["custom_config"])["source"] == shown["Transform"]["sha256"]


def test_good_declarations_are_summarised(cli):
    lines = cli("validate", *presets.names(), "--set", "trainer.train_steps=1234").out.splitlines()
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
def test_a_distribution_is_shown(cli, distribution, text):
    assert text in cli("validate", "mnist", "--set", f"trainer.distribution={distribution}").out


def test_one_bad_declaration_among_good_ones(tmp_path, cli):
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: x\n")
    found = cli("validate", "mnist", str(bad), "digits", code=2)
    assert found.out.count("ok: ") == 2
    assert f"{bad} has 2 problems" in found.err


def test_a_partial_declaration_is_refused_with_the_command_that_merges_it(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("trainer: {seed: 7}\n")
    (tmp_path / "whole.yaml").write_text(presets.path("digits").read_text() + "wrong: 1\n")
    refused = cli("validate", "digits", "whole.yaml", "mine.yaml", code=2).err
    (hint,) = (line for line in refused.splitlines() if "merge it over" in line)
    command = hint.partition("tfx-estimator ")[2].split()
    assert cli(*command).out.startswith("ok: digits+mine.yaml: ")
    assert "merge it over" not in cli("validate", "mine.yaml", code=2).err
