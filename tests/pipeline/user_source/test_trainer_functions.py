"""Analysis of a module's source: its run_fn and trainer_fn, and the params that a model_fn reads."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from tests.stack import needs_estimator_template
from tfx_estimator.pipeline.user_source.functions import is_read, params_read
from tfx_estimator.pipeline.user_source.trainer_functions import find_estimator, functions_of


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
        # The params that these read are unknown.
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
def test_the_params_that_are_read_are_found(tmp_path, body, read):
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
def test_reading_an_entry_covers_its_parents_and_its_parts(read, expected):
    assert is_read(("a", "b"), read) is expected


ESTIMATOR = """
import tensorflow as tf

def make(fn_args, schema):
    return {"estimator": tf.estimator.LinearClassifier([]), "train_spec": 1, "eval_spec": 2}

def run_fn(fn_args):
    spec = make(fn_args, None)
    tf.estimator.train_and_evaluate(spec["estimator"], spec["train_spec"], spec["eval_spec"])
"""
KERAS = """
def run_fn(fn_args):
    model = build()
    model.fit(data(), steps_per_epoch=fn_args.train_steps)
    model.save(fn_args.serving_model_dir)
"""
BOTH = """
import tensorflow as tf

def trainer_fn(fn_args, schema):
    return dict(estimator=tf.estimator.Estimator(lambda features: None))
"""


@needs_estimator_template
def test_tfxs_own_template_is_recognised(tmp_path: Path):
    spec = importlib.util.find_spec("tfx")
    templates = Path(spec.origin).parent / "experimental" / "templates" / "taxi" / "models"
    shutil.copytree(templates, tmp_path / "models")
    name = "models.estimator_model.model"
    found = find_estimator(f"{name}:run_fn", [str(tmp_path)])
    lines = (tmp_path / "models/estimator_model/model.py").read_text().splitlines()
    number = next(index for index, line in enumerate(lines, 1) if "tf_estimator.train_and_evaluate" in line)
    assert found == f"model.py:{number}: tf_estimator.train_and_evaluate"
    assert find_estimator(str(tmp_path / "models/estimator_model/model.py")) == found
    assert find_estimator("models.keras_model.model:run_fn", [str(tmp_path)]) == ""


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (ESTIMATOR, "module.py:9: tf.estimator.train_and_evaluate"),
        (KERAS, ""),
        # Functions that it does not call do not count.
        (KERAS + BOTH, ""),
        # An Estimator that is only constructed trains nothing.
        (KERAS.replace("data()", "trainer_fn(fn_args, None)") + BOTH, ""),
        (KERAS.replace("build()", "helper.build()") + "import helper\n",
         "helper.py:3: tf.keras.estimator.model_to_estimator"),
        # Keras users have their own train_and_evaluate.
        ("def train_and_evaluate(x): x.fit()\ndef run_fn(a): train_and_evaluate(a)\n", ""),
        ("from tensorflow.estimator import train_and_evaluate as t, train_and_evaluate\n"
         "def run_fn(a): train_and_evaluate(a)\n", "module.py:2: train_and_evaluate"),
        ("class Model:\n def fit(self, e): e.estimator.DNNRegressor([])\ndef run_fn(a): Model().fit(a)\n",
         "module.py:2: e.estimator.DNNRegressor"),
        ("def run_fn(a): loop(a)\ndef loop(a): run_fn(a)\n", ""),
        ("def (\n", ""),
    ],
)  # fmt: skip
def test_a_run_fn_that_trains_an_estimator_is_recognised(tmp_path: Path, text, call):
    (tmp_path / "module.py").write_text(text)
    (tmp_path / "helper.py").write_text(
        "import tensorflow as tf\ndef build():\n    return tf.keras.estimator.model_to_estimator(1)\n"
    )
    for target in ("module:run_fn", str(tmp_path / "module.py")):
        assert find_estimator(target, [str(tmp_path)]) == call


def test_without_source_nothing_is_recognised(tmp_path: Path):
    assert find_estimator("no_such_module:run_fn") == ""
    assert functions_of(str(tmp_path / "none.py")) is None
    (tmp_path / "binary.py").write_bytes(b"\x00")
    assert functions_of(str(tmp_path / "binary.py")) is None
