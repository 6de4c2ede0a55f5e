"""`trainer.warm_start`: what it takes, what is there, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.warm_start import WarmStart

pytestmark = pytest.mark.unit


def checkpoint(folder: Path, step: int, content: bytes = b"x") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    prefix = folder / f"model.ckpt-{step}"
    for suffix in (".index", ".data-00000-of-00001"):
        prefix.with_name(prefix.name + suffix).write_bytes(content)
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{prefix.name}"\nall_model_checkpoint_paths: "a"\n')
    return str(prefix)


def saved_model(folder: Path) -> str:
    prefix = folder / "variables" / "variables"
    prefix.parent.mkdir(parents=True)
    prefix.with_suffix(".index").write_bytes(b"x")
    return str(prefix)


def test_weights_are_found_in_whatever_a_training_leaves(tmp_path):
    first, last = checkpoint(tmp_path / "run", 20), checkpoint(tmp_path / "run", 60)
    assert WarmStart(checkpoint=str(tmp_path / "run")).prefix == last
    assert WarmStart(checkpoint=first).prefix == first
    plain = saved_model(tmp_path / "plain")
    assert WarmStart(model=str(tmp_path / "plain")).prefix == plain
    artifact = saved_model(tmp_path / "artifact" / "Format-Serving")
    assert WarmStart(model=str(tmp_path / "artifact")).prefix == artifact
    saved_model(tmp_path / "pushed" / "9")
    newest = saved_model(tmp_path / "pushed" / "10")
    assert WarmStart(model=str(tmp_path / "pushed")).prefix == newest


def test_the_fingerprint_is_of_the_weights_and_not_of_their_place(tmp_path):
    one = WarmStart(checkpoint=checkpoint(tmp_path / "one", 20)).fingerprint()
    assert WarmStart(checkpoint=checkpoint(tmp_path / "two", 60)).fingerprint() == one
    assert WarmStart(checkpoint=checkpoint(tmp_path / "one", 20, b"y")).fingerprint() != one


def test_a_path_is_relative_to_the_declarations_folder(write, good, tmp_path):
    checkpoint(tmp_path / "run", 20)
    loaded = load(write(good + "  warm_start: {checkpoint: run, exclude: ['logits/*']}\n"))
    section = loaded.declaration.trainer.warm_start
    assert section == WarmStart(checkpoint=str(tmp_path / "run"), exclude=("logits/*",))
    assert loaded.origins["trainer.warm_start.checkpoint"] == "mine.yaml:8, made absolute"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{checkpoint: nowhere}", "there is no such file or folder"),
        ("{model: .}", "no weights are there"),
        ("{}", "exactly one of checkpoint and model"),
        ("{checkpoint: a, model: b}", "checkpoint and model are both given"),
    ],
)
def test_bad_ones(refuse, good, section, said):
    assert said in refuse(good + f"  warm_start: {section}\n")


def test_a_run_fn_begins_where_it_wants(refuse, good, tmp_path):
    (tmp_path / "own.py").write_text("def run_fn(fn_args): ...\n")
    checkpoint(tmp_path / "run", 20)
    text = good.replace("model: mnist_cnn", "module_file: own.py") + "  warm_start: {checkpoint: run}\n"
    assert "a run_fn makes its own model" in refuse(text)
