"""The baseline is the latest blessed model other than the candidate."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.unit


def resolve(models: dict[int, bool], candidate: int) -> dict[str, list[int]]:
    """Resolves among models, id to blessed; returns the ids by channel."""
    from tfx.types import standard_artifacts

    from components.baseline_resolver import BaselineStrategy

    def model(number: int):
        artifact = standard_artifacts.Model()
        artifact.id = number
        return artifact

    def blessing(number: int, blessed: bool):
        artifact = standard_artifacts.ModelBlessing()
        artifact.id = 100 + number
        artifact.set_int_custom_property("blessed", int(blessed))
        artifact.set_int_custom_property("current_model_id", number)
        return artifact

    inputs = {
        "model": [model(number) for number in models],
        "model_blessing": [blessing(number, blessed) for number, blessed in models.items()],
        "candidate": [model(candidate)],
    }
    resolved = BaselineStrategy().resolve_artifacts(None, inputs)
    assert resolved is not None
    return {key: [artifact.id for artifact in artifacts] for key, artifacts in resolved.items()}


def test_the_latest_blessed_model_is_found():
    assert resolve({1: True, 2: True, 3: False}, candidate=4) == {
        "model": [2],
        "model_blessing": [102],
        "candidate": [4],
    }


def test_the_candidate_is_not_compared_with_itself():
    assert resolve({1: True, 2: True}, candidate=2)["model"] == [1]


def test_there_is_no_baseline_before_the_first_blessing():
    for models in ({}, {1: False}, {1: True}):
        assert resolve(models, candidate=1) == {"model": [], "model_blessing": [], "candidate": [1]}
