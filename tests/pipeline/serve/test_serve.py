"""TensorFlow Serving's REST API: values, methods, versions that take over, limits."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import math
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import uvicorn

from tests.browser import open_browser
from tests.waiting import wait_until
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.predict.found_model import FoundModel
from tfx_estimator.pipeline.serve.app import make_app
from tfx_estimator.pipeline.serve.versions import Versions

pytestmark = pytest.mark.unit

DEEP = functools.reduce(lambda inner, _: [inner], range(300), 1)


class Served:
    def __init__(self, address: str, versions: Versions, lines: list[str]) -> None:
        self.address, self.versions, self.lines = address, versions, lines

    def ask(self, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}{path}", data, {"Content-Type": kind})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as refused:
            return refused.code, json.loads(refused.read())

    def predict(self, method: str = "predict", **body: Any) -> tuple[int, Any]:
        return self.ask(f"/v1/models/m:{method}", body)


@contextlib.contextmanager
def serving(
    folder: Path,
    labels: tuple[str, ...] = (),
    most: int = 2**20,
    seconds: float = 60.0,
    hosts: tuple[str, ...] = ("*",),
) -> Iterator[Served]:
    """Serves a model in a thread."""
    lines: list[str] = []
    versions = Versions(FoundModel(str(folder), labels), lines.append)
    server = uvicorn.Server(uvicorn.Config(make_app(versions, "m", most, seconds, hosts), log_level="warning"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        versions.start()
        try:
            yield Served(f"http://127.0.0.1:{listener.getsockname()[1]}", versions, lines)
        finally:
            versions.close()
            server.should_exit = True
            thread.join()


def save_scale(folder: Path, factor: float) -> Path:
    """Saves a model that multiplies, as a version."""
    module = tf.Module()
    module.factor = tf.Variable(factor)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def scale(x):
        return {"y": x * module.factor}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "a"), tf.TensorSpec([None], tf.string, "b")])
    def two(a, b):
        return {
            "sum": a + module.factor,
            "text": b,
            "text_bytes": b,
            "count": tf.shape(a)[0] * tf.ones_like(a, tf.int32),
        }

    # Renamed into place, as a Pusher does.
    part = folder.with_name(f"{folder.name}.part")
    tf.saved_model.save(module, str(part), signatures={"serving_default": scale, "two": two})
    return Path(shutil.move(part, folder))


@pytest.fixture(scope="module")
def scale(tmp_path_factory) -> Iterator[Served]:
    with serving(save_scale(tmp_path_factory.mktemp("m") / "7", 2.0)) as served:
        yield served


def test_rows_are_answered_as_rows_and_columns_as_columns(scale):
    assert scale.predict(instances=[[1, 2], [3, 0.1]]) == (200, {"predictions": [[2.0, 4.0], [6.0, 0.2]]})
    assert scale.predict(instances=[{"x": [1, 2]}]) == (200, {"predictions": [[2.0, 4.0]]})
    assert scale.predict(inputs=[[1, 2]]) == (200, {"outputs": [[2.0, 4.0]]})
    assert scale.predict(inputs={"x": [[1, 2]]}) == (200, {"outputs": [[2.0, 4.0]]})
    # Bytes are base64; of outputs only those whose name says so.
    encoded = {"b64": base64.b64encode("ö".encode()).decode()}
    row = {"count": 2, "sum": 3.0, "text": "ö", "text_bytes": encoded}
    body = {"signature_name": "two", "instances": [{"a": 1, "b": encoded}, {"a": 1, "b": "ö"}]}
    assert scale.predict(**body) == (200, {"predictions": [row, row]})
    answer = scale.predict(signature_name="two", inputs={"a": [1], "b": ["c"]})[1]["outputs"]
    assert answer == {"count": [1], "sum": [3.0], "text": ["c"], "text_bytes": [{"b64": "Yw=="}]}


def test_numbers_that_are_none_are_tokens_in_both_directions(scale):
    status, answer = scale.ask("/v1/models/m:predict", b'{"instances": [[NaN, -Infinity]]}')
    assert status == 200
    assert math.isnan(answer["predictions"][0][0])
    assert answer["predictions"][0][1] == -math.inf


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "Missing 'inputs' or 'instances' key"),
        ({"instances": []}, "No values in 'instances' array"),
        ({"instances": [[1, 2]], "inputs": 1}, "Not formatted correctly expecting only one of"),
        ({"instances": [["a", 2]]}, 'JSON Value: "a" Type: String is not of expected type: float32'),
        ({"instances": [[1, 2], [1]]}, "Failed to process element: 1 of 'instances' list"),
        ({"instances": [[1, [2]]]}, "Encountered list at unexpected level: 1 expected < 1"),
        ({"instances": [{"z": [1, 2]}]}, "keys must be equal to: x"),
        ({"signature_name": "two", "instances": [1]}, "instances is a plain list, but expecting list of objects"),
        ({"signature_name": "two", "inputs": {"a": [1]}}, "Missing named input: b in 'inputs' object."),
        ({"signature_name": "two", "inputs": {"a": [1], "b": [{"b64": "?"}]}}, "Unable to base64 decode"),
        ({"signature_name": "two", "inputs": {"a": [1], "b": ["\ud800"]}}, "The surrogate pair in string is invalid."),
        ({"instances": [[1, 2, 3]]}, "Input x has shape [1,3], expected (None, 2)"),
        ({"instances": [[1, 10**400]]}, "Input x has a number that is too large for float32"),
        (
            {"instances": [functools.reduce(lambda inner, _: [inner], range(300), 1)]},
            "Encountered list at unexpected level: 254",
        ),
        ({"signature_name": "no", "instances": [1]}, 'Serving signature name: "no" not found in signature def'),
    ],
)
def test_a_wrong_request_gets_the_words_of_tensorflow_serving(scale, body, message):
    status, answer = scale.predict(**body)
    assert (status, message in answer["error"]) == (400, True), answer


def test_what_is_there_is_told_and_what_is_not_is_not_found(scale):
    status = {"error_code": "OK", "error_message": ""}
    told = {"model_version_status": [{"version": "7", "state": "AVAILABLE", "status": status}]}
    assert scale.ask("/v1/models/m") == scale.ask("/v1/models/m/versions/7") == (200, told)
    found = scale.ask("/v1/models/m/metadata")[1]
    assert found["model_spec"] == {"name": "m", "signature_name": "", "version": "7"}
    signature = found["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["inputs"]["x"]["dtype"] == "DT_FLOAT"
    assert signature["method_name"] == "tensorflow/serving/predict"
    body = {"instances": [[1, 2]]}
    assert scale.ask("/v1/models/m/versions/7:predict", body)[0] == 200
    assert scale.ask("/v1/models/m/versions/8:predict", body) == (
        404,
        {"error": "Servable not found for request: Specific(m, 8)"},
    )
    assert scale.ask("/v1/models/n:predict", body)[0] == 404
    assert scale.ask("/v1/models/n")[0] == 404
    assert scale.ask("/v1/models/m:say", body) == (400, {"error": "Malformed request: POST /v1/models/m:say"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(f"{scale.address}/v1/models/m", method="DELETE"), timeout=60)
    assert (refused.value.code, json.load(refused.value)) == (405, {"error": "Method Not Allowed"})
    assert scale.ask("/v1/models/m:predict", b"{") == (400, {"error": "JSON Parse error: Invalid value. at offset: 1"})


def test_a_newer_version_takes_over_without_a_lost_request(tmp_path):
    save_scale(tmp_path / "1", 1.0)
    answers: list[tuple[int, Any]] = []
    ends = threading.Event()
    with serving(tmp_path / "1") as served:

        def load() -> None:
            while not ends.is_set():
                answers.append(served.predict(instances=[[1, 2]]))

        threads = [threading.Thread(target=load) for _ in range(4)]
        for each in threads:
            each.start()
        try:
            save_scale(tmp_path / "002", 2.0)
            wait_until(lambda: (200, {"predictions": [[2.0, 4.0]]}) in answers, "version 2 answers")
            # A damaged one is not taken, and said once.
            (tmp_path / "3").mkdir()
            (tmp_path / "3" / "saved_model.pb").write_bytes(b"no model")
            wait_until(
                lambda: any(line.startswith("version 3 is not taken") for line in served.lines), "version 3 is refused"
            )
            time.sleep(2.5)
            assert served.predict(instances=[[1, 2]])[1] == {"predictions": [[2.0, 4.0]]}
            # The newest is removed: back to the one before.
            shutil.rmtree(tmp_path / "3")
            shutil.rmtree(tmp_path / "002")
            first = (200, {"predictions": [[1.0, 2.0]]})
            wait_until(lambda: served.predict(instances=[[1, 2]]) == first, "version 1 answers again")
        finally:
            ends.set()
            for each in threads:
                each.join()
    assert len(answers) > 50
    assert {status for status, _ in answers} == {200}
    assert len([line for line in served.lines if "not taken" in line]) == 1


def test_a_version_that_is_still_copied_is_taken_when_it_is_whole(tmp_path):
    save_scale(tmp_path / "1", 1.0)
    whole = save_scale(tmp_path / "whole", 2.0)
    with serving(tmp_path / "1") as served:
        (tmp_path / "2").mkdir()
        shutil.copy2(whole / "saved_model.pb", tmp_path / "2")
        wait_until(lambda: any("version 2 is not taken" in line for line in served.lines), "version 2 is refused")
        shutil.copytree(whole, tmp_path / "2", dirs_exist_ok=True)
        second = (200, {"predictions": [[2.0, 4.0]]})
        wait_until(lambda: served.predict(instances=[[1, 2]]) == second, "version 2 answers")


def test_a_damaged_warm_up_is_an_error_of_its_version(tmp_path):
    extra = save_scale(tmp_path / "1", 1.0) / "assets.extra"
    extra.mkdir()
    (extra / "tf_serving_warmup_requests").write_bytes(b"damaged " * 9)
    with pytest.raises(PipelineError, match="warm-up request 0 failed"):
        Versions(FoundModel(str(tmp_path / "1")), print)


def test_a_page_of_another_name_gets_no_answer(tmp_path):
    with serving(save_scale(tmp_path / "1", 1.0), hosts=("127.0.0.1",)) as served:
        assert served.predict(instances=[[1, 2]])[0] == 200
        request = urllib.request.Request(f"{served.address}/v1/models/m", headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(request, timeout=60)


def test_a_request_has_limits_of_size_and_time(tmp_path, monkeypatch):
    with serving(save_scale(tmp_path / "1", 1.0), most=1000, seconds=0.5) as served:
        # A body that does not come to its end.
        with socket.create_connection(("127.0.0.1", int(served.address.rpartition(":")[2]))) as sender:
            sender.sendall(b"POST /v1/models/m:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
            assert b" 504 " in sender.recv(1000)
        assert served.predict(instances=[[1.0, 2.0]] * 100)[0] == 413
        ends = threading.Event()
        monkeypatch.setattr(type(served.versions.current), "predict", lambda *_: ends.wait(30))
        status, answer = served.predict(instances=[[1, 2]])
        ends.set()
    assert (status, answer) == (504, {"error": "Timed out after 0.5 seconds"})


def save_classifier(folder: Path) -> Path:
    """Saves a model as an Estimator exports it: it classifies and regresses tf.Examples of `x` and `word`."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        examples = tf.compat.v1.placeholder(tf.string, [None], "examples")
        read = tf.io.parse_example(
            examples,
            {"x": tf.io.FixedLenFeature([], tf.float32), "word": tf.io.FixedLenFeature([], tf.string, "")},
        )
        second = tf.sigmoid(read["x"])
        scores = tf.stack([1 - second, second], 1)
        classes = tf.tile([["no", "yes"]], [tf.shape(scores)[0], 1])
        builder = tf.compat.v1.saved_model.Builder(str(folder))
        of = tf.compat.v1.saved_model
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {
                "serving_default": of.classification_signature_def(examples, classes, scores),
                "value": of.regression_signature_def(examples, read["x"] * 2),
                "probabilities": of.predict_signature_def({"examples": examples}, {"probabilities": scores}),
            },
        )
        builder.save()
    return folder


def test_an_estimators_export_classifies_and_regresses(tmp_path):
    with serving(save_classifier(tmp_path / "1")) as served:
        status, answer = served.predict("classify", context={"word": "a"}, examples=[{"x": 0.0}, {"x": [2.0]}])
        assert status == 200
        assert [[name for name, _ in row] for row in answer["results"]] == [["no", "yes"]] * 2
        sure = 1 / (1 + math.exp(-2))
        np.testing.assert_allclose([row[1][1] for row in answer["results"]], [0.5, sure], rtol=1e-6)
        assert served.predict("regress", signature_name="value", examples=[{"x": 1.5}]) == (200, {"results": [3.0]})
        status, answer = served.predict("regress", examples=[{"x": 1.5}])
        assert (status, answer["error"]) == (
            400,
            "Expected regression signature method_name to be tensorflow/serving/regress. Was: "
            "tensorflow/serving/classify",
        )
        assert served.predict("classify")[0] == 400
        assert "Unexpected element type" in served.predict("classify", examples=[{"x": [1.0, "a"]}])[1]["error"]


def test_a_row_is_tried_as_predict_reads_a_table(tmp_path):
    with serving(save_classifier(tmp_path / "1"), labels=("no", "yes")) as served:
        status, answer = served.ask("/try", {"x": "2", "word": ""})
        assert status == 200
        assert answer["results"][0] == ["yes", pytest.approx(1 / (1 + math.exp(-2)), rel=1e-6)]
        status, answer = served.ask("/try", {"x": "two", "word": ""})
        assert (status, "column x holds 'two'" in answer["error"]) == (400, True)
        with urllib.request.urlopen(f"{served.address}/", timeout=60) as page:
            text = page.read().decode()
        assert '<input name="x" inputmode="decimal">' in text
        assert '<input name="word">' in text


def test_a_row_is_filled_in_on_the_page(tmp_path):
    with (
        serving(save_classifier(tmp_path / "1"), labels=("no", "yes")) as served,
        open_browser(tmp_path / "browser") as browser,
    ):
        browser.open(f"{served.address}/", 390)
        shown = "document.getElementById('results').innerText"
        for value, expected in (("2", "yes"), ("two", "column x holds 'two'")):
            browser.evaluate(f"document.querySelector('input[name=x]').value = '{value}'")
            browser.evaluate("document.querySelector('button').click()")
            wait_until(lambda text=expected: text in browser.evaluate(shown), expected)
        # The status of the refused row is logged by the browser itself.
        assert [line for line in browser.console_messages() if "400" not in line] == []


def save_named(folder: Path, names: tuple[str, ...]) -> Path:
    """Saves a model of tf.Examples that names its classes."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
    def serve(examples):
        x = tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([], tf.float32)})["x"]
        scores = tf.nn.softmax(tf.stack([-x, x], 1))
        return {"probabilities": scores, "classes": tf.gather(tf.constant(names), tf.argmax(scores, 1))}

    tf.saved_model.save(tf.Module(), str(folder), signatures=serve)
    return folder


def test_each_version_names_its_own_classes(tmp_path):
    save_named(tmp_path / "1", ("cat", "dog"))
    with serving(tmp_path / "1") as served:
        assert served.ask("/try", {"x": "2"})[1]["results"][0][0] == "dog"
        save_named(tmp_path / "part", ("dog", "emu")).rename(tmp_path / "2")
        wait_until(lambda: served.versions.current.version == 2, "version 2 answers")
        assert served.ask("/try", {"x": "2"})[1]["results"][0][0] == "emu"
