"""The commands in compose.yaml: a user's declaration, with another strategy."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.root import ROOT
from tfx_estimator.__main__ import make_parser
from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit

OWN = """
name: mine
data: {dataset: digits, splits: {train: "train[:80%]", eval: "train[80%:]"}}
trainer:
  model: mnist_cnn
  train_steps: 5
  global_batch_size: 192
  distribution: {train: {strategy: multi_worker_mirrored, workers: 3, timeout_seconds: 90}, sharding: file}
"""


# A variable's name; and its default, or the text that replaces it.
_VARIABLE = re.compile(r"\$\{(\w+):([-+])((?:[^{}]|\{[^{}]*\})*)\}")


def words(command: str, **variables: str) -> list[str]:
    """Splits a command like compose: variables first."""
    return shlex.split(_interpolate(command, variables))


def _interpolate(text: str, variables: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        name, kind, other = found.groups()
        given = variables.get(name, "")
        return given if bool(given) is (kind == "-") else _interpolate(other, variables)

    return _VARIABLE.sub(value, text)


def declared(**variables: str) -> dict:
    """The declaration that the containers of compose.yaml train, by its sections."""
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    (command,) = {service["command"] for service in services.values()}
    args = make_parser().parse_args(words(command, **variables))
    return load(args.source, args.overrides).declaration.dict()


def test_three_containers_can_share_the_demonstration():
    trainer = declared()["trainer"]
    assert trainer["distribution"]["train"]["strategy"] == "multi_worker_mirrored"
    assert trainer["global_batch_size"] % 3 == 0


def test_only_the_strategy_of_a_users_declaration_is_overridden(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(OWN)
    assert declared(DECLARATION="mine.yaml") == load("mine.yaml").declaration.dict()
    Path("mine.yaml").write_text(OWN.replace("multi_worker_mirrored, workers: 3", "parameter_server"))
    trainer = declared(DECLARATION="mine.yaml --set trainer.train_steps=6")["trainer"]
    assert (trainer["global_batch_size"], trainer["train_steps"]) == (192, 6)
    train = trainer["distribution"]["train"]
    assert (train["strategy"], train["timeout_seconds"]) == ("multi_worker_mirrored", 90)


def test_a_batch_is_overridden_if_one_is_named(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my own.yaml").write_text(OWN)
    assert declared(BATCH="48")["trainer"]["global_batch_size"] == 48
    assert declared(DECLARATION="'my own.yaml'", BATCH="384")["trainer"]["global_batch_size"] == 384
    for batch in ({}, {"BATCH": ""}):
        assert declared(DECLARATION="'my own.yaml'", **batch)["trainer"]["global_batch_size"] == 192
