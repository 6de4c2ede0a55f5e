"""`tfx-estimator predict` for the rows of a table: features, cells, and what is written."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

import tfx_estimator
from tests.artifacts import example, write_records
from tests.docs.pages import PAGES
from tfx_estimator.__main__ import main
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
from tfx_estimator.pipeline.base.errors import DataError, DeclarationError
from tfx_estimator.pipeline.predict.features import Feature, parsed_features
from tfx_estimator.pipeline.python.rows import to_rows

pytestmark = pytest.mark.unit

FLOAT, STRING, INT = 1, 7, 9
# The fields of the examples below, as a CSV file has them, and as tf.Examples.
TABLE = "id,age,city,visits,label\n7,30.5,Oslo,4,yes\n8,-2,,,no\n9,1e1,Rome,3.0,no\n"
EXAMPLES = [{"age": 30.5, "city": b"Oslo", "visits": 4}, {"age": -2.0}, {"age": 10.0, "city": b"Rome", "visits": 3}]


class Rows(tf.Module):
    """Parses features of each kind, and serves classes, a probability and a number."""

    def number(self, examples: tf.Tensor) -> tf.Tensor:
        features = {
            "age": tf.io.FixedLenFeature([], tf.float32),
            "city": tf.io.FixedLenFeature([], tf.string, default_value="?"),
            "visits": tf.io.VarLenFeature(tf.int64),
            "tags": tf.io.RaggedFeature(tf.string),
        }
        parsed = tf.io.parse_example(examples, features)
        counts = tf.sparse.reduce_sum(parsed["visits"], 1) + 100 * tf.cast(parsed["tags"].row_lengths(), tf.int64)
        letters = tf.cast(tf.strings.length(parsed["city"]), tf.float32)
        # The sum of a sparse tensor has no known shape.
        return parsed["age"] / 10 + tf.cast(counts, tf.float32) + letters / 100

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
    def classes(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        number = tf.ensure_shape(self.number(examples), [None])
        scores = tf.nn.softmax(tf.stack([number, tf.ones_like(number), -number], 1) / 8)
        names = tf.gather(tf.constant(["high", "middle", "low"]), tf.argmax(scores, 1))
        return {"probabilities": scores, "classes": names}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
    def price(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"price": tf.reshape(self.number(examples), [-1, 1])}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
    def flat(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"predictions": self.number(examples)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
    def binary(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"dense_1": tf.sigmoid(tf.reshape(self.number(examples), [-1, 1]))}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder, rows = tmp_path_factory.mktemp("model"), Rows()
    names = {"serving_default": "classes", "price": "price", "flat": "flat", "binary": "binary"}
    tf.saved_model.save(rows, str(folder), {name: getattr(rows, each) for name, each in names.items()})
    return str(folder)


def served(model: str, *rows: dict, signature: str = "serving_default", output: str = "probabilities") -> np.ndarray:
    """Returns the model's own answers to tf.Examples."""
    loaded = tf.saved_model.load(model)
    serve = loaded.signatures[signature]
    (argument,) = serve.structured_input_signature[1]
    return serve(**{argument: tf.constant([example(**row) for row in rows])})[output].numpy()


Run = Callable[..., tuple[list[dict[str, str]], str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs `predict`; returns the rows of its output, and stderr."""

    def call(*args: object, code: int = 0) -> tuple[list[dict[str, str]], str]:
        capfd.readouterr()
        exit_code = main(["predict", *map(str, args)])
        found = capfd.readouterr()
        assert exit_code == code, found.err
        assert "Traceback" not in found.err
        return list(csv.DictReader(io.StringIO(found.out))), found.err

    return call


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(TABLE)
    return path


def check_classes(rows: list[dict[str, str]], expected: np.ndarray) -> None:
    labels = ("high", "middle", "low")
    assert [row["class"] for row in rows] == [labels[each] for each in expected.argmax(1)]
    found = [[float(row[f"score_{label}"]) for label in labels] for row in rows]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_rows_come_out_with_the_answers_to_their_examples(run, model, table, tmp_path):
    rows, stderr = run(model, table)
    assert list(rows[0]) == ["id", "age", "city", "visits", "label", "class", "score_high", "score_middle", "score_low"]
    before = list(csv.DictReader(io.StringIO(TABLE)))
    assert [{name: row[name] for name in before[0]} for row in rows] == before
    check_classes(rows, served(model, *EXAMPLES))
    assert stderr.count("lacks columns that the model parses, and takes as missing: tags") == 1
    assert "3 predicted" in stderr
    assert run(model, table, table, "--batch-size", 2)[0] == [*rows, *rows]
    records = write_records(tmp_path / "records", [example(**each) for each in EXAMPLES])
    check_classes(run(model, records)[0], served(model, *EXAMPLES))


@pytest.mark.parametrize(("ending", "compression"), [("tfrecord", ""), ("tfrecord.gz", "GZIP")])
def test_tf_examples_come_out_with_the_answers_as_features(model, table, tmp_path, capsys, ending, compression):
    named = [{**each, "id": number, "class": b"mine"} for number, each in enumerate(EXAMPLES)]
    records = write_records(tmp_path / "records", [example(**each) for each in named])
    output = tmp_path / f"out.{ending}"
    assert main(["predict", str(model), str(records), "--output", str(output), "--batch-size", "2"]) == 0
    found = [*tf.data.TFRecordDataset(str(output), compression).as_numpy_iterator()]
    features = [tf.train.Example.FromString(each).features.feature for each in found]
    expected = served(model, *EXAMPLES)
    labels = (b"high", b"middle", b"low")
    for before, after, scores in zip(named, features, expected, strict=True):
        assert [*after["predicted_class"].bytes_list.value] == [labels[scores.argmax()]]
        answered = [after.pop(f"score_{label.decode()}").float_list.value[0] for label in labels]
        np.testing.assert_allclose(answered, scores, atol=1e-6)
        after.pop("predicted_class")
        assert {**after} == {**tf.train.Example.FromString(example(**before)).features.feature}
    # A row has columns that no tf.Example of it has.
    assert main(["predict", str(model), str(table), "--output", str(tmp_path / "rows.tfrecord")]) == 2
    assert f"{table}, line 2 cannot be written as TFRecord" in capsys.readouterr().err
    assert not (tmp_path / "rows.tfrecord").exists()


def test_the_command_of_the_page_writes_the_columns_of_the_page(run, tmp_path, monkeypatch):
    class Yes(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
        def serve(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
            spec = {"age": tf.io.FixedLenFeature([1], tf.float32), "city": tf.io.FixedLenFeature([1], tf.string)}
            parsed = tf.io.parse_example(examples, spec)
            yes = tf.sigmoid((parsed["age"] - 36) * tf.cast(parsed["city"] == "Oslo", tf.float32))
            scores = tf.concat([1 - yes, yes], 1)
            return {"scores": scores, "classes": tf.gather(tf.constant(["no", "yes"]), tf.argmax(scores, 1))}

    (page,) = (page for page in PAGES if page.name == "docs/predict.md")
    (number,) = (each for each, block in enumerate(page.blocks) if "rows.csv" in block.text)
    header, row = page.blocks[number + 1].text.splitlines()
    monkeypatch.chdir(tmp_path)
    module = Yes()
    tf.saved_model.save(module, "model", module.serve)
    Path("rows.csv").write_text("id,age,city\n7,38,Oslo\n")
    run(*page.blocks[number].text.split()[2:])
    found = Path("answers.csv").read_text().splitlines()
    assert found[0] == header
    *cells, no, yes = found[1].split(",")
    assert [*cells, f"{float(no):.4f}", f"{float(yes):.4f}"] == row.split(",")


def test_the_forms_agree_with_and_without_beam(run, model, table, tmp_path):
    outputs = [tmp_path / f"{where}.{form}" for where in ("here", "beam") for form in ("csv", "jsonl", "parquet")]
    for path in outputs[:3]:
        run(model, table, "--output", path)
    run(model, table, "--output", outputs[3], "--beam", "digits")
    assert outputs[3].read_bytes() == outputs[0].read_bytes()
    rows = list(csv.DictReader(outputs[0].open()))
    lines = [json.loads(line) for line in outputs[1].read_text().splitlines()]
    assert [list(line) for line in lines] == [["id", "age", "city", "visits", "label", "class", "scores"]] * 3
    assert [[line["id"], line["class"], line["scores"]["low"]] for line in lines] == [
        [row["id"], row["class"], float(row["score_low"])] for row in rows
    ]
    written = pyarrow.parquet.read_table(outputs[2])
    assert written.column_names == list(rows[0])
    assert written["age"].to_pylist() == ["30.5", "-2", "1e1"]


def test_a_parquet_file_keeps_its_types(run, model, tmp_path):
    # As pandas writes whole numbers of which one is missing.
    columns = {
        "age": [30, -2, 10],
        "visits": [4.0, float("nan"), 3.0],
        "city": ["Oslo", None, "Rome"],
        "tags": [[], ["a", "b"], None],
    }
    table = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), table)
    expected = served(model, {**EXAMPLES[0], "age": 30.0}, {**EXAMPLES[1], "tags": [b"a", b"b"]}, EXAMPLES[2])
    rows, stderr = run(model, table)
    check_classes(rows, expected)
    assert "lacks" not in stderr
    for engine in ([], ["--beam", "digits"]):
        run(model, table, "--output", tmp_path / "out.parquet", *engine)
        written = pyarrow.parquet.read_table(tmp_path / "out.parquet")
        assert [str(each) for each in written.schema.types[:4]] == ["int64", "double", "string", "string"]
        assert written["visits"].to_pylist() == [4.0, None, 3.0]
        assert written["tags"].to_pylist() == ["[]", "['a', 'b']", None]
        np.testing.assert_allclose(written["score_high"].to_numpy(), expected[:, 0], atol=1e-6)


def test_wrong_cells_are_named_and_the_rest_is_predicted(run, model, tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text(
        'age,visits,city\n30.5,4,Oslo\nold,1,x\n1,2.5,x\n\n,1,x\nnan,1,x\n1,2\n1,99999999999999999999,x\n10,3,"Ro\nme"\n'
    )
    output = tmp_path / "out.csv"
    expected = served(model, EXAMPLES[0], {**EXAMPLES[2], "city": b"Ro\nme"})
    for engine in ([], ["--beam", "digits"]):
        stderr = run(model, table, "--output", output, *engine, code=3)[1]
        check_classes(list(csv.DictReader(output.open(newline=""))), expected)
        for why in (
            "line 3: column age holds 'old', which is no finite number",
            "line 4: column visits holds '2.5', which is no whole number",
            "line 6: column age is empty, and the model needs a value",
            "line 7: column age holds 'nan', which is no finite number",
            "line 8: the row has 2 cells, and the table 3 columns",
            "line 9: column visits holds '99999999999999999999', which is no whole number",
        ):
            assert f"{table}, {why}" in stderr
        assert f"6 could not be read, first {table}, line 3" in stderr


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("years,city,visits\n1,Oslo,2\n", "parses: age, tags"),
        ("age;city\n1;Oslo\n", "commas between columns"),
        ("age,age\n1,2\n", "several columns 'age'"),
        ("", "it is empty"),
        ("age," + "x" * 200_000, "field larger than field limit"),
        ("age,city\n", "there is nothing to predict"),
        (b"age,city\n1,Troms\xf8\n", "probably in LATIN1"),
        ('age,city\n1,"Oslo\n', "unexpected end of data"),
    ],
)
def test_a_wrong_table_is_refused_and_nothing_is_written(run, model, tmp_path, content, text):
    table, output = tmp_path / "rows.csv", tmp_path / "out.csv"
    table.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert text in run(model, table, "--output", output, code=3)[1]
    assert not output.exists()


def test_tables_of_other_columns_are_named(run, model, table, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("age\n1\n")
    rows, stderr = run(model, table, other, code=3)
    assert [row["id"] for row in rows] == ["7", "8", "9"]
    assert f"{other} has other columns than the inputs before it, id, age, city, visits, label" in stderr


def test_images_and_rows_are_refused_by_models_of_the_other(run, model, table, tmp_path):
    class Images(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 2, 2, 1], tf.uint8, "images")])
        def answer(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"logits": tf.cast(images[:, 0, :, 0], tf.float32)}

    module = Images()
    tf.saved_model.save(module, str(tmp_path / "images"), module.answer)
    assert f"{table} has no column of images" in run(tmp_path / "images", table, code=3)[1]
    assert "takes no images" in run(model, "a.png", code=2)[1]


@pytest.mark.parametrize(("signature", "output"), [("price", "price"), ("flat", "predictions")])
def test_a_number_that_is_no_score_is_a_column(run, model, table, tmp_path, signature, output):
    expected = served(model, *EXAMPLES, signature=signature, output=output).reshape(-1)
    rows, _ = run(model, table, "--signature", signature, "--top", 1)
    assert list(rows[0])[5:] == ["prediction"]
    np.testing.assert_allclose([float(row["prediction"]) for row in rows], expected, rtol=1e-6)
    for form in ("jsonl", "parquet"):
        run(model, table, "--signature", f"{signature}:{output}", "--output", tmp_path / f"out.{form}")
    lines = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    np.testing.assert_allclose([line["prediction"] for line in lines], expected, rtol=1e-6)
    written = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    np.testing.assert_array_equal(written["prediction"].to_numpy(), expected)


def test_one_probability_is_the_second_class_and_columns_of_the_table_keep_their_names(run, model, tmp_path):
    (tmp_path / "rows.csv").write_text("class,age\nx,30.5\n")
    (row,), _ = run(model, tmp_path / "rows.csv", "--signature", "binary")
    ((expected,),) = served(model, {"age": 30.5}, signature="binary", output="dense_1")
    assert list(row) == ["class", "age", "predicted_class", "score_0", "score_1"]
    assert (row["class"], row["predicted_class"]) == ("x", "1")
    assert float(row["score_1"]) == pytest.approx(expected, abs=1e-6)


def test_python_predicts_rows_in_memory(model):
    pandas = pytest.importorskip("pandas")
    rows = [{"id": 1, **EXAMPLES[0], "city": "Oslo"}, {"id": 2, "age": np.float32(-2), "visits": 5, "tags": ["a"]}]
    expected = served(model, EXAMPLES[0], {**EXAMPLES[1], "visits": 5, "tags": [b"a"]})
    wrong = {"city": "x"}
    given = (pandas.DataFrame(rows), (row for row in [*rows, wrong]))
    result = tfx_estimator.predict(model, *given, progress=False)
    assert [row["id"] for row in result.rows] == [1, 2, 1, 2]
    assert [row["city"] for row in result.rows[:2]] == ["Oslo", None]
    assert isinstance(result.error, DataError)
    assert "1 could not be read" in result.error.what
    assert "row 2" in result.error.what
    table = result.to_dataframe()
    assert list(table)[:6] == ["id", "age", "city", "visits", "tags", "class"]
    found = table[["score_high", "score_middle", "score_low"]].to_numpy()
    np.testing.assert_allclose(found, np.concatenate([expected] * 2), atol=1e-6)
    assert "<th>score</th>" in result._repr_html_()
    # Paths of images.
    assert not to_rows(pandas.Series(["a.png"]))
    with pytest.raises(DeclarationError, match="the column age cannot be read"):
        tfx_estimator.predict(model, [{"age": 1}, {"age": "old"}], progress=False)


def _spec() -> dict:
    return {"a": tf.io.FixedLenFeature([], tf.float32), "b": tf.io.FixedLenFeature([], tf.int64, 3)}


def _as_before(examples: tf.Tensor) -> tf.Tensor:
    """Parses by the operation of TensorFlow before 2.0."""
    empty = tf.zeros([0], tf.float32)
    kinds = {"sparse_types": [tf.string], "dense_shapes": [[], []]}
    keys = {"sparse_keys": ["c"], "dense_keys": ["a", "b"], "dense_defaults": [empty, tf.constant(3, tf.int64)]}
    return tf.raw_ops.ParseExample(serialized=examples, names=[], **keys, **kinds).dense_values[0]


@pytest.mark.parametrize(
    "parse",
    [
        lambda examples: tf.io.parse_example(examples, {**_spec(), "c": tf.io.VarLenFeature(tf.string)})["a"],
        lambda examples: tf.map_fn(
            lambda one: tf.io.parse_single_example(one, {**_spec(), "c": tf.io.VarLenFeature(tf.string)})["a"],
            examples,
            tf.float32,
        ),
        _as_before,
    ],
)
def test_features_are_those_of_the_operations_that_the_signature_needs(parse):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(examples):
        return parse(examples), tf.io.parse_example(examples, {"other": tf.io.VarLenFeature(tf.string)})["other"].values

    graph = meta_graph_pb2.MetaGraphDef()
    answer = serve.get_concrete_function().graph
    graph.graph_def.CopyFrom(answer.as_graph_def())
    for name, tensor in zip(("one", "none"), (answer.outputs[0], answer.inputs[0])):
        graph.signature_def[name].outputs["out"].name = tensor.name
    expected = {"a": Feature(FLOAT, True), "b": Feature(INT, False), "c": Feature(STRING, False)}
    assert parsed_features(graph, "one") == expected
    assert parsed_features(graph, "none") is None


def test_canned_estimators_predict_rows(run, tmp_path):
    bring_back_estimator()
    column = tf.feature_column
    words = column.categorical_column_with_vocabulary_list("city", ["Oslo", "Rome"])
    columns = [column.numeric_column("age"), column.indicator_column(words)]
    spec = column.make_parse_example_spec(columns)
    receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)
    table = tmp_path / "rows.csv"
    table.write_text("age,city,y\n1,Oslo,1\n2,,0\n")
    rows = [{"age": 1.0, "city": b"Oslo"}, {"age": 2.0}]

    def export(estimator: tf.estimator.Estimator) -> str:
        batch = {"age": [1.0, 2.0], "city": ["Oslo", "Rome"]}, [1, 0]
        estimator.train(lambda: tf.data.Dataset.from_tensors(batch), steps=1)
        return estimator.export_saved_model(str(tmp_path / "exports"), receiver).decode()

    config = tf.estimator.RunConfig(save_summary_steps=None, log_step_count_steps=None)
    classifier = export(tf.estimator.DNNClassifier([2], columns, n_classes=2, config=config))
    found, _ = run(classifier, table)
    expected = served(classifier, *rows, signature="predict")
    np.testing.assert_allclose([[float(row["score_0"]), float(row["score_1"])] for row in found], expected, atol=1e-6)
    assert [row["class"] for row in found] == [str(each) for each in expected.argmax(1)]
    alone, _ = run(classifier, table, "--signature", "predict:logistic")
    assert [float(row["score_1"]) for row in alone] == pytest.approx(list(expected[:, 1]), abs=1e-6)
    regressor = export(tf.estimator.LinearRegressor(columns, config=config))
    found, _ = run(regressor, table)
    expected = served(regressor, *rows, signature="predict", output="predictions")[:, 0]
    assert [float(row["prediction"]) for row in found] == pytest.approx(list(expected), rel=1e-6)
