"""The test kit calls module files as TFX's Trainer does."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.root import ROOT
from tfx_estimator import testing

TAXI = ROOT.parent / "shared" / "data" / "taxi"
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]


@pytest.mark.long
@pytest.mark.skipif(not TAXI.is_dir(), reason="there is no taxi_utils.py")
def test_a_trainer_fn_of_tfx_trains_and_serves() -> None:
    import tensorflow_data_validation as tfdv
    from tensorflow_metadata.proto.v0 import schema_pb2

    from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator

    bring_back_estimator()
    spec = importlib.util.spec_from_file_location("taxi_utils", TAXI / "taxi_utils.py")
    taxi = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(taxi)
    schema = tfdv.load_schema_text(str(TAXI / "schema.pbtxt"))
    kinds = {schema_pb2.INT: int, schema_pb2.FLOAT: float, schema_pb2.BYTES: str}
    types = {each.name: kinds[each.type] for each in schema.feature}
    with open(TAXI / "data.csv", encoding="utf-8") as file:
        read = [row for row, _ in zip(csv.DictReader(file), range(60))]
    rows = [{name: kind(row[name]) if row[name] else None for name, kind in types.items()} for row in read]
    graph = testing.artifact("TransformGraph", (taxi.preprocessing_fn, rows, schema))
    found = testing.preprocess(graph, rows, label=["tips", "tips_xf"])
    assert [int(each) for each in found["tips_xf"]] == [
        int((row["tips"] or 0.0) > 0.2 * np.float32(row["fare"] or 0.0)) for row in rows
    ]
    transformed = testing.examples([dict(zip(found, each)) for each in zip(*found.values())])
    given = testing.fn_args(transformed, testing.artifact("Schema", schema), graph, train_steps=7)
    made = taxi.trainer_fn(given, schema)
    tf.estimator.train_and_evaluate(made["estimator"], made["train_spec"], made["eval_spec"])
    assert made["estimator"].get_variable_value("global_step") == 7
    (export,) = Path(given.serving_model_dir, "export", "chicago-taxi").iterdir()
    served = testing.export_and_serve(str(export), rows, signature="predict")
    features = {name: np.stack(values) for name, values in found.items()}
    (predicted,) = made["estimator"].predict(
        lambda: tf.data.Dataset.from_tensors(features), yield_single_examples=False
    )
    np.testing.assert_allclose(served["logits"], predicted["logits"], rtol=1e-5, atol=1e-6)


def run_fn(fn_args: Any) -> None:
    """A run_fn as in TFX's tutorials."""
    spec = {"x": tf.io.FixedLenFeature([2], tf.float32), "y": tf.io.FixedLenFeature([1], tf.float32)}

    def data(files: Any) -> Any:
        records = tf.data.TFRecordDataset(tf.io.gfile.glob(files), "GZIP").repeat().batch(8)
        return records.map(lambda each: tf.io.parse_example(each, spec)).map(lambda each: (each, each.pop("y")))

    given = tf.keras.Input([2], name="x")
    model = tf.keras.Model({"x": given}, tf.keras.layers.Dense(1, kernel_initializer="zeros")(given))
    model.compile(tf.keras.optimizers.Adam(fn_args.custom_config["rate"]), "mse")
    counts = {"steps_per_epoch": fn_args.train_steps, "validation_steps": fn_args.eval_steps}
    model.fit(data(fn_args.train_files), validation_data=data(fn_args.eval_files), verbose=0, **counts)
    model.export(fn_args.serving_model_dir) if hasattr(model, "export") else model.save(fn_args.serving_model_dir)


def test_a_run_fn_trains_and_serves() -> None:
    rows = [{"x": [float(n), 1.0], "y": 2.0 * n} for n in range(16)]
    given = testing.fn_args(testing.examples(rows), train_steps=600, custom_config={"rate": 0.1})
    run_fn(given)
    served = testing.export_and_serve(given.serving_model_dir, rows)
    np.testing.assert_allclose(next(iter(served.values())), [[row["y"]] for row in rows], atol=0.1)
