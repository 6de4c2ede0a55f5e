"""The clients of examples/serving, unchanged, request a pushed model by REST and gRPC, as the page on serving says."""

from __future__ import annotations

import base64
import json
import runpy
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from tests.artifacts import example
from tests.browser import open_browser
from tests.docs.pages import Page
from tests.model_server import ModelServer
from tests.root import ROOT, start_python
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PAGE = Page(ROOT / "docs" / "serving.md")
EXAMPLE = ROOT / "examples" / "serving"


@pytest.fixture(scope="module")
def server(digits_run) -> Iterator[ModelServer]:
    # The newest version before other tests pushed theirs.
    with ModelServer(digits_run.kept / "digits" / "serving", "digits") as server:
        yield server


@pytest.fixture(scope="module")
def files(served_digits, tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("files")
    names = [str(folder / f"{number}.png") for number in range(4)]
    for name, image in zip(names, served_digits["images"]):
        tf.io.write_file(name, tf.io.encode_png(image))
    return names


@pytest.fixture(scope="module")
def tried(digits_run) -> Iterator[tuple[str, subprocess.Popen]]:
    """The address of `tfx-estimator serve`."""
    folder = digits_run.kept / "digits" / "serving"
    process = start_python("-m", "tfx_estimator", "serve", str(folder), "--port", "0")
    try:
        line = next(line for line in process.stdout if line.startswith("page"))
        yield line.split()[1].rstrip("/"), process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("client", ["rest.py", "ask.py"])
def test_the_clients_of_the_example_get_the_predictions_of_the_model(
    server, files, served_digits, client, monkeypatch, capsys
):
    port = server.port if client == "rest.py" else server.grpc_port
    monkeypatch.setattr(sys, "argv", [client, f"localhost:{port}", *files])
    runpy.run_path(str(EXAMPLE / client), run_name="__main__")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [file for file, _, _ in rows] == files
    assert [name for _, name, _ in rows] == [name.decode() for name in served_digits["classes"][:4]]
    expected = served_digits["probabilities"][:4].max(axis=1)
    np.testing.assert_allclose([float(score) for _, _, score in rows], expected, rtol=0, atol=1e-6)


def test_each_signature_answers_the_same_and_each_protocol_names_the_image_that_is_wrong(server, files, served_digits):
    encoded = [Path(file).read_bytes() for file in files]
    stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(f"localhost:{server.grpc_port}"))

    def predict(signature: str, name: str, values: object) -> dict[str, np.ndarray]:
        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = "digits", signature
        request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
        answers = stub.Predict(request, timeout=60).outputs
        return {name: tf.make_ndarray(value) for name, value in answers.items()}

    images = served_digits["images"][:4]
    examples = [example(image=image.tobytes()) for image in images]
    asked = (("encoded", "encoded", encoded), ("images", "images", images), ("serving_default", "examples", examples))
    for answers in (predict(*each) for each in asked):
        np.testing.assert_array_equal(answers["class_ids"], served_digits["class_ids"][:4])
        np.testing.assert_allclose(answers["probabilities"], served_digits["probabilities"][:4], rtol=0, atol=1e-6)

    wrong = tf.io.encode_png(np.zeros((30, 28, 1), np.uint8)).numpy()
    (message,) = (block.text.strip() for block in PAGE.of("text") if "of the batch" in block.text)
    with pytest.raises(grpc.RpcError, match="image 1 of the batch") as error:
        predict("encoded", "encoded", [encoded[0], wrong, b""])
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert message in error.value.details()
    instances = [{"b64": base64.b64encode(each).decode()} for each in (encoded[0], wrong)]
    body = {"signature_name": "encoded", "instances": instances}
    url = f"http://localhost:{server.port}/v1/models/digits/versions/{server.version}:predict"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, json.dumps(body).encode())
    assert message in json.load(refused.value)["error"]
    assert refused.value.code == 400


def test_a_pushed_version_was_warmed_up_by_each_signature(server):
    assert server.warmed == 6


def test_the_client_of_the_example_asks_our_own_server_unchanged(tried, files, served_digits, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["rest.py", tried[0].removeprefix("http://"), *files])
    runpy.run_path(str(EXAMPLE / "rest.py"), run_name="__main__")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [name for _, name, _ in rows] == [name.decode() for name in served_digits["classes"][:4]]
    expected = served_digits["probabilities"][:4].max(axis=1)
    np.testing.assert_allclose([float(score) for _, _, score in rows], expected, rtol=0, atol=1e-6)


_DROP = """
const bytes = Uint8Array.from(atob("{}"), each => each.charCodeAt(0));
const data = new DataTransfer();
data.items.add(new File([bytes], "digit.png", {{type: "image/png"}}));
document.getElementById("drop").dispatchEvent(new DragEvent("drop", {{dataTransfer: data, cancelable: true}}));
"""


def test_an_image_dropped_on_the_page_gets_its_class_and_sigterm_ends_the_server(tried, tmp_path):
    address, process = tried
    image = (ROOT / "examples" / "digit.png").read_bytes()
    with open_browser(tmp_path / "browser") as browser:
        for width in (1280, 390):
            browser.open(f"{address}/", width)
            browser.evaluate(_DROP.format(base64.b64encode(image).decode()))
            rows = "[...document.querySelectorAll('#results div')].map(each => each.innerText)"
            found = wait_until(partial(browser.evaluate, rows), "the page shows the classes")
            assert len(found) == 10
            assert found[0].split()[0] == "3"
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            assert browser.console_messages() == []
    process.terminate()
    assert process.wait(60) == 143
    with (
        pytest.raises(ConnectionRefusedError),
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))),
    ):
        pass
