"""Which entries a model_fn takes out of its params, by its text."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.user_source.functions import is_read, params_read

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("body", "read"),
    [
        ("pass", set()),
        ('x = params["units"]', {("units",)}),
        ('x = params.get("units", 3) + params.pop("depth")', {("units",), ("depth",)}),
        ('rate = params["optimizer"]["learning_rate"]', {("optimizer", "learning_rate")}),
        ('rate = params.get("optimizer", {}).get("learning_rate")', {("optimizer", "learning_rate")}),
        ('optimizer = params["optimizer"]', {("optimizer",)}),
        ('f(params["optimizer"])', {("optimizer",)}),
        ('if "units" in params: pass', {("units",)}),
        ('f = lambda: params["units"]', {("units",)}),
        # What these read cannot be told.
        ("build(params)", None),
        ("build(**params)", None),
        ("x = params[key]", None),
        ("x = params.get(key)", None),
        ("for key in params: pass", None),
        ("params = dict(params)", None),
        ("params['units'] = 3", None),
        ("x = params.units", None),
        ("def inner(params): return params['a']", None),
    ],
)
def test_the_text_tells_what_is_read(tmp_path, body, read):
    (tmp_path / "mine.py").write_text(f"def model_fn(features, labels, mode, params):\n    {body}\n")
    assert params_read("mine:model_fn", [str(tmp_path)]) == read


@pytest.mark.parametrize("text", ["def model_fn(features, labels, mode): pass", "from x import model_fn", "import x"])
def test_a_model_fn_without_params_reads_none_and_an_imported_one_may_read_all(tmp_path, text):
    (tmp_path / "mine.py").write_text(text + "\n")
    assert params_read("mine:model_fn", [str(tmp_path)]) == (set() if "def" in text else None)


@pytest.mark.parametrize(
    ("read", "expected"),
    [({()}, True), ({("a",)}, True), ({("a", "b")}, True), ({("a", "b", "c")}, True), ({("a", "c"), ("b",)}, False)],
)
def test_an_entry_is_read_with_what_it_is_in_and_by_its_parts(read, expected):
    assert is_read(("a", "b"), read) is expected
