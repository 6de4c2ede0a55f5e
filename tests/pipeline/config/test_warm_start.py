"""`trainer.warm_start`: what it takes, what is there, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.warm_start import WarmStart

pytestmark = pytest.mark.unit


def checkpoint(folder: Path, step: int, content: bytes = b"x") -> str:
    """Writes files as those of a checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    prefix = folder / f"model.ckpt-{step}"
    for suffix in (".index", ".data-00000-of-00001"):
        prefix.with_name(prefix.name + suffix).write_bytes(content)
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{prefix.name}"\nall_model_checkpoint_paths: "a"\n')
    return str(prefix)


def saved_model(folder: Path) -> str:
    """Writes files as those of a SavedModel's variables."""
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
    ("section", "parts"),
    [
        (
            "{checkpoint: nowhere}",
            ["warm_start.checkpoint: ", "there is no such file or folder", "declaration's folder"],
        ),
        ("{model: .}", ["warm_start.model: ", "no weights are there", "a folder of a SavedModel"]),
        ("{}", ["exactly one of checkpoint and model"]),
        ("{checkpoint: a, model: b}", ["checkpoint and model are both given", "name one"]),
        ("{checkpont: a}", ["unknown key `checkpont`", "did you mean `checkpoint`?"]),
    ],
)
def test_bad_ones(refuse, good, section, parts):
    message = refuse(good + f"  warm_start: {section}\n")
    for part in parts:
        assert part in message


def test_a_run_fn_begins_where_it_wants(refuse, good, tmp_path):
    (tmp_path / "own.py").write_text("def run_fn(fn_args): ...\n")
    checkpoint(tmp_path / "run", 20)
    text = good.replace("model: mnist_cnn", "module_file: own.py") + "  warm_start: {checkpoint: run}\n"
    assert "a run_fn makes its own model" in refuse(text)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", ""),
        ("train_steps: 20", "the checkpoint is of the last step to train"),
        ("exclude", "a training that goes on keeps all of its variables"),
        ("tune", "trials begin at step 0"),
        ("module_file", "where a module file keeps its checkpoints is its own affair"),
    ],
)
def test_what_goes_on_from_a_checkpoint(write, good, tmp_path, more, said):
    (tmp_path / "own.py").write_text("def trainer_fn(fn_args, schema): ...\n")
    checkpoint(tmp_path / "run", 20)
    text = re.sub("train_steps: .*", "train_steps: 40", good)
    excluded = ", exclude: ['logits/*']" if more == "exclude" else ""
    text += f"  warm_start: {{checkpoint: run, resume: true{excluded}}}\n"
    if more == "tune":
        text += "tune: {max_trials: 2, ranges: {trainer.optimizer.learning_rate: {values: [0.1, 0.2]}}}\n"
    elif more == "module_file":
        text = text.replace("model: mnist_cnn", "module_file: own.py")
    elif more.startswith("train_steps"):
        text = text.replace("train_steps: 40", more)
    if not said:
        assert load(write(text)).declaration.trainer.warm_start.step == 20
        return
    with pytest.raises(DeclarationError, match=said):
        load(write(text))
