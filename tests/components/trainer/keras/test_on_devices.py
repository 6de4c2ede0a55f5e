"""An exported model is converted to TensorFlow Lite and ONNX, as the page on serving describes."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.components.trainer.keras.test_exported import SECTION, save
from tests.docs.pages import Page
from tests.root import ROOT
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier

PAGE = Page(ROOT / "docs" / "serving.md")
IMAGES = np.random.default_rng(3).integers(0, 256, (5, 8, 8, 1), np.uint8)
_ASK = """
import sys, numpy as np, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
np.save(sys.argv[3], session.run(["probabilities"], {"images": np.load(sys.argv[2])})[0])
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The model converted by the script of examples/serving, and its answers to the images."""
    folder = tmp_path_factory.mktemp("on_devices")
    layers = [
        tf.keras.layers.Conv2D(4, 3, activation="relu"),
        tf.keras.layers.Rescaling(0.01),
        tf.keras.layers.Flatten(),
    ]
    network = tf.keras.Sequential([*layers, tf.keras.layers.Dense(3)])
    network(IMAGES.astype(np.float32) / 255)
    save(KerasClassifier(network, SECTION), folder / "1", IMAGES.shape[1:])
    answers = tf.saved_model.load(str(folder / "1")).signatures["images"](images=tf.constant(IMAGES))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["pixels.py", str(folder / "1"), str(folder / "pixels")])
        runpy.run_path(str(ROOT / "examples" / "serving" / "pixels.py"), run_name="__main__")
    return folder, answers["probabilities"].numpy()


def test_tensorflow_lite_answers_as_the_model_does(small):
    folder, expected = small
    interpreter = tf.lite.Interpreter(str(folder / "pixels.tflite"))
    answered = interpreter.get_signature_runner()(images=IMAGES)["probabilities"]
    np.testing.assert_allclose(answered, expected, rtol=0, atol=1e-5)
    assert len(set(expected.argmax(axis=1))) > 1 or np.ptp(expected, axis=0).max() > 0.01


@pytest.mark.unit
@pytest.mark.long
@pytest.mark.timeout(900)
def test_onnx_answers_as_the_model_does(small, tmp_path):
    folder, expected = small
    (install,) = re.findall(r"^pip install (.*tf2onnx.*)$", PAGE.text, re.MULTILINE)
    (convert,) = re.findall(r"^python (-m tf2onnx.*)$", PAGE.text, re.MULTILINE)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "onnx")], check=True)
    python = str(tmp_path / "onnx" / "bin" / "python")
    pip = [python, "-m", "pip", "install", "-q", *install.split()]
    installed = subprocess.run(pip, capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"pip cannot install {install}: {installed.stderr.strip().splitlines()[-1]}")
    subprocess.run([python, *convert.split()], check=True, capture_output=True, cwd=folder)
    np.save(tmp_path / "images.npy", IMAGES)
    answers = tmp_path / "answers.npy"
    ask = [python, "-c", _ASK, str(folder / "pixels.onnx"), str(tmp_path / "images.npy"), str(answers)]
    subprocess.run(ask, check=True, capture_output=True)
    np.testing.assert_allclose(np.load(answers), expected, rtol=0, atol=1e-5)
