"""What compose.yaml has each container run: a declaration of one's own, but for its strategy."""

from __future__ import annotations

import re
import shlex
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


def words(command: str, **variables: str) -> list[str]:
    """The words of a command, as compose makes them of the file's text: variables first.

    Args:
        command: As the file has it.
        **variables: Of the environment.
    """
    return shlex.split(re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: variables.get(found[1]) or found[2], command))


def declared(**variables: str) -> dict:
    """What the containers of compose.yaml train, by its sections."""
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    (command,) = {service["command"] for service in services.values()}
    args = make_parser().parse_args(words(command, **variables))
    return load(args.source, args.overrides).declaration.dict()


def test_the_demonstration_can_be_shared_by_three():
    trainer = declared()["trainer"]
    assert trainer["distribution"]["train"]["strategy"] == "multi_worker_mirrored"
    assert trainer["global_batch_size"] % 3 == 0


def test_of_a_declaration_of_ones_own_the_strategy_alone_is_overridden(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(OWN)
    assert declared(DECLARATION="mine.yaml") == load("mine.yaml").declaration.dict()
    Path("mine.yaml").write_text(OWN.replace("multi_worker_mirrored, workers: 3", "parameter_server"))
    trainer = declared(DECLARATION="mine.yaml --set trainer.train_steps=6")["trainer"]
    assert (trainer["global_batch_size"], trainer["train_steps"]) == (192, 6)
    train = trainer["distribution"]["train"]
    assert (train["strategy"], train["timeout_seconds"]) == ("multi_worker_mirrored", 90)
