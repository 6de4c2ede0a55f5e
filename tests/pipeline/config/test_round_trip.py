"""A declaration survives JSON and YAML exactly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import Declaration, load
from tfx_estimator.pipeline.config.yaml_text import inline, read_yaml, render

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30)
    # Texts that YAML loaders may read as another type.
    | st.sampled_from(
        ["yes", "null", "~", "1e-3", "010", "0x1F", "1:30", "2024-01-01", "=", "<<", "- a", "a: b", "#", "1_0"]
    )
)
keys = st.text(min_size=1, max_size=20)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3))


@st.composite
def declarations(draw) -> Declaration:
    optimizer = {
        "name": draw(st.sampled_from(["sgd", "momentum", "adam"])),
        "learning_rate": draw(st.floats(1e-12, 1000)),
        "momentum": draw(st.none() | st.floats(0, 1, exclude_max=True)),
        "values": draw(st.none() | st.lists(st.floats(0, 1000), max_size=3)),
        "nesterov": draw(st.none() | st.booleans()),
    }
    return Declaration.parse_obj(
        {
            "name": draw(st.from_regex(r"\A[a-z][a-z0-9-]{0,62}\Z")),
            "data": {
                "dataset": draw(st.text(max_size=20)),
                "version": draw(st.none() | st.sampled_from(["3.0.1", "3.0", "3", "1e3"])),
                "shards": draw(st.integers(1, 1000)),
                "image_size": draw(st.none() | st.lists(st.integers(1, 4096), min_size=2, max_size=2)),
            },
            "trainer": {
                "train_steps": draw(st.integers(1, 10**9)),
                "params": draw(st.dictionaries(keys, values, max_size=4)),
                "optimizer": optimizer,
                "augment": draw(
                    st.lists(st.sampled_from(["random_flip", {"cutout": None}, {"random_zoom": {"factor": 0.3}}]))
                ),
            },
            "evaluator": {"slices": draw(st.lists(st.just("label"), max_size=3))},
            "beam": {"options": draw(st.lists(st.text(max_size=10), max_size=3))},
        }
    )


@given(declaration=declarations())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_json_and_yaml_give_back_the_same_declaration(declaration):
    text = declaration.to_json()
    again = Declaration.from_json(text)
    assert again == declaration
    assert again.to_json() == text
    document = read_yaml(declaration.to_yaml(), "text", {})
    assert not document.problems
    assert Declaration.parse_obj(document.value).to_json() == text


@given(value=values)
@settings(max_examples=50, deadline=None)
def test_one_line_of_yaml_holds_any_value(value):
    line = inline(value)
    assert "\n" not in line
    document = read_yaml(f"key: {line}  # comment\n", "text", {})
    assert not document.problems
    assert document.value == {"key": value}
    assert json.dumps(document.value) == json.dumps({"key": value})


def test_json_is_canonical():
    def to_json(params: str) -> str:
        return load("mnist", ["trainer.model=cifar_resnet9", f"trainer.params={params}"]).declaration.to_json()

    one = to_json("{width: 1, synchronized: 2}")
    other = to_json("{synchronized: 2, width: 1}")
    assert one == other
    assert list(json.loads(one)) == sorted(json.loads(one))
    assert one != to_json("{synchronized: 2, width: 2}")


@pytest.mark.parametrize("name", ["digits", "mnist", "cifar10"])
def test_the_output_of_show_loads_as_the_same_declaration(tmp_path: Path, name):
    params = "trainer.params={width: 0.5, synchronized: 'a # b'}"
    loaded = load(name, ["trainer.seed=7", "trainer.optimizer.name=adam", "trainer.model=cifar_resnet9", params])
    for number, text in enumerate([render(loaded.declaration.dict(), loaded.origins), loaded.declaration.to_yaml()]):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text, encoding="utf-8")
        assert load(file).declaration == loaded.declaration


@pytest.mark.parametrize("text", ["", "{", "[]", "5", '{"name": "x"}', "[" * 100_000, '{"name": NaN}'])
def test_json_that_is_no_declaration_is_refused(text):
    with pytest.raises(DeclarationError, match="the stored declaration cannot be read"):
        Declaration.from_json(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**70, {1: 2}, (1, 2), object(), b"x"])
def test_values_that_json_cannot_restore_are_refused(value):
    fields = {"name": "x", "data": {"dataset": "d"}, "trainer": {"train_steps": 1, "params": {"p": value}}}
    with pytest.raises(ValueError, match="params"):
        Declaration.parse_obj(fields)
