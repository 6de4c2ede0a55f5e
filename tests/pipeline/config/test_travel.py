"""What the user's own code needs where a declaration is deployed."""

from __future__ import annotations

import pytest

from tests.pipeline.runners.deployed import COMMON, OF_TARGET
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.targets import TARGETS
from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit


def test_what_the_image_must_have_is_told_for_a_target_only(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ndata: {dataset: digits, splits: {train: 'train[:80%]', eval: 'train[80%:]'}}\n"
        "trainer: {model: 'networks:small', train_steps: 9}\n"
    )
    (tmp_path / "networks.py").write_text("import hypothesis, pytest, yaml\n\ndef small(num_classes):\n    return 1\n")
    place = f"{tmp_path}/networks.py:1"
    for target in TARGETS:
        loaded = load(tmp_path / "mine.yaml", (*COMMON, *OF_TARGET[target]), target)
        assert f"beside tfx-estimator: hypothesis ({place}), pytest ({place})" in " ".join(loaded.notes)
    assert not load(tmp_path / "mine.yaml").notes
    (tmp_path / "networks.py").write_text("import nowhere_to_be_found\n\ndef small(num_classes):\n    return 1\n")
    load(tmp_path / "mine.yaml")
    for target in TARGETS:
        with pytest.raises(DeclarationError, match="imports nowhere_to_be_found, which is found nowhere"):
            load(tmp_path / "mine.yaml", (*COMMON, *OF_TARGET[target]), target)


def test_an_import_by_a_computed_name_is_told_for_a_target_only(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ndata: {dataset: digits, splits: {train: 'train[:80%]', eval: 'train[80%:]'}}\n"
        "trainer: {model: 'networks:small', train_steps: 9}\n"
    )
    text = "import importlib\n\ndef small(num_classes):\n    return importlib.import_module(f'layers_{num_classes}')\n"
    (tmp_path / "networks.py").write_text(text)
    for target in TARGETS:
        notes = load(tmp_path / "mine.yaml", (*COMMON, *OF_TARGET[target]), target).notes
        assert any(f"{tmp_path}/networks.py:4: modules are imported by names" in note for note in notes)
    assert not load(tmp_path / "mine.yaml").notes
