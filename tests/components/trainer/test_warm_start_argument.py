"""A Trainer for anybody's pipeline: its parameter `warm_start`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.components.trainer.test_late_contract import execute
from tests.components.trainer.test_settings import RUN, channels
from tfx_estimator.components.trainer import Trainer
from tfx_estimator.components.trainer.settings import OPERATION_KEY, Settings
from tfx_estimator.pipeline.base.errors import DeclarationError

pytestmark = pytest.mark.unit


def made(**given: Any) -> dict[str, Any]:
    return Trainer(**channels(), **{"trainer_fn": "no_such.trainer_fn", **given}).exec_properties


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """What stands for weights; nothing reads them."""
    return store(tmp_path / "weights", b"one")


def store(folder: Path, content: bytes) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "model.ckpt-1.index").write_bytes(b"index")
    (folder / "model.ckpt-1.data-00000-of-00001").write_bytes(content)
    return str(folder / "model.ckpt-1")


def test_the_weights_are_part_of_the_key_and_their_content_is(checkpoint, tmp_path, monkeypatch):
    def key(**given: Any) -> dict[str, Any]:
        return {name: value for name, value in made(**given).items() if name != OPERATION_KEY}

    given = {"warm_start": {"checkpoint": checkpoint, "exclude": ["head/*"]}}
    begun = Settings.of(made(**given)).warm_start
    assert (begun.prefix, begun.exclude) == (checkpoint, ("head/*",))
    assert Settings.of(made()).warm_start is None
    first = key(**given)
    assert first != key()
    assert first == key(**given)
    assert first != key(warm_start={"checkpoint": checkpoint})
    store(tmp_path / "weights", b"other")
    assert first != key(**given)
    # Relative to where the pipeline is made; it trains elsewhere.
    monkeypatch.chdir(tmp_path)
    assert Settings.of(made(warm_start={"checkpoint": "weights/model.ckpt-1"})).warm_start.prefix == checkpoint


@pytest.mark.parametrize(
    ("warm_start", "given", "told"),
    [
        ({"checkpoint": "no/such"}, {}, "there is no such file or folder"),
        ({"checkpoint": "no/such"}, {}, "check the path: it is relative to the current folder"),
        ({"checkpont": "{}"}, {}, "did you mean `checkpoint`?"),
        ({}, {}, "none of the two is given"),
        ("{}", {}, "Trainer(warm_start=…) is '"),
        ({"checkpoint": object()}, {}, "Trainer(warm_start=…): checkpoint is an object, builtins.object"),
        ({"checkpoint": "{}"}, {"trainer_fn": None, "run_fn": "no_such.run_fn"}, "a run_fn makes its own model"),
        ({"checkpoint": "{}"}, {"settings": Settings(warm_start_section={"model": "x"})}, "them in one place"),
    ],
)
def test_what_is_wrong_is_refused_when_the_pipeline_is_built(checkpoint, warm_start, given, told):
    def filled(value: Any) -> Any:
        return value.format(checkpoint) if isinstance(value, str) else value

    section = (
        {key: filled(value) for key, value in warm_start.items()}
        if isinstance(warm_start, dict)
        else filled(warm_start)
    )
    with pytest.raises(DeclarationError, match=re.escape(told)) as found:
        made(**given, warm_start=section)
    assert "trainer." not in str(found.value)


def test_a_run_fn_that_is_found_late_is_refused_too(checkpoint, tmp_path):
    (tmp_path / "mine.py").write_text(RUN)
    with pytest.raises(DeclarationError, match="a run_fn makes its own model"):
        execute(tmp_path, {}, warm_start={"checkpoint": checkpoint}, module_file=f"{tmp_path}/mine.py")
