"""The user's lines of a traceback."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.task.start import _write_error
from tfx_estimator.model_fn.user_models.keras_model import note_makers
from tfx_estimator.pipeline.run.explain import explain
from tfx_estimator.pipeline.user_source.frames import user_lines

# A library, and then this project, lie between the user's code and the error.
MODULE = """
import json

from tfx_estimator.pipeline.config import load


def read():
    return json.loads("{")


def trained(x):
    raise ValueError(x.name)


def divided(x):
    return 1 // x


def declare():
    return load("nothing")


def again():
    try:
        read()
    except ValueError as error:
        raise RuntimeError("not read") from error
"""


@pytest.fixture
def users(tmp_path: Path) -> ModuleType:
    path = tmp_path / "users.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("users", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _raised(function) -> Exception:
    try:
        function()
    except Exception as error:
        # Without this file's own frame, since this file is no library.
        return error.with_traceback(error.__traceback__.tb_next)
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("name", "lines"), [("read", ["read"]), ("declare", ["declare"]), ("again", ["again", "read", "again"])]
)
def test_only_lines_of_the_users_files_are_shown(users, name, lines):
    shown = user_lines(_raised(getattr(users, name)))
    found = [line.split(", in ")[1].split("\n")[0] for line in shown]
    # The cause first: `read` was called by `again`, which then raised.
    assert found == lines
    assert all(f'File "{users.__file__}"' in line for line in shown)


def test_an_error_of_a_library_alone_has_none():
    assert user_lines(_raised(lambda: json.loads("{")).with_traceback(None)) == []


def _record(error: Exception, tmp_path: Path) -> dict:
    """Returns the error record that a task leaves for the supervisor."""
    _write_error(str(tmp_path / "error.json"), error)
    return json.loads((tmp_path / "error.json").read_text())


def test_the_pipeline_and_a_task_report_the_same_lines(users, tmp_path):
    error = _raised(users.read)
    record = _record(error, tmp_path)
    assert record["where"] == "".join(user_lines(error)).rstrip()
    assert record["where"] in explain(error, "Trainer", "run.log").what
    assert record["todo"] == "fix the code above"


def test_lines_converted_by_autograph_are_the_users(users, tmp_path):
    error = _raised(lambda: tf.function(users.trained)(tf.constant(1)))
    line = f'File "{users.__file__}", line {MODULE.splitlines().index("    raise ValueError(x.name)") + 1}, in trained'
    assert line in (record := _record(error, tmp_path))["where"]
    assert record["todo"] == "fix the code above"
    assert "failed in your code" in str(explain(error, "Transform", "run.log"))


@pytest.mark.parametrize("graph", [True, False])
def test_a_failed_operation_shows_the_users_lines_and_none_of_tensorflows(users, tmp_path, graph):
    def fail():
        if not graph:
            return tf.function(users.divided)(tf.constant(0))
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            return session.run(users.divided(tf.constant(0)))

    error = _raised(fail)
    # TensorFlow's message itself is still long.
    assert "Detected at node" in str(error)
    assert not graph or "site-packages/tensorflow" in str(error)
    record = _record(error, tmp_path)
    line = f'File "{users.__file__}", line {MODULE.splitlines().index("    return 1 // x") + 1}, in divided'
    assert record["where"].endswith(f"  {line}\n    return 1 // x")
    assert record["what"].startswith("Integer division by zero\n")
    assert record["type"] == "InvalidArgumentError"
    assert record["todo"] == "fix the code above"
    message = str(explain(error, "Transform", "run.log"))
    assert "component Transform failed in your code: InvalidArgumentError: Integer division by zero" in message
    assert line in message
    for text in (*record.values(), message):
        assert "site-packages" not in str(text)
        assert "Detected at node" not in str(text)


def test_out_of_memory_names_no_line_of_the_users(users):
    text = "Graph execution error:\n\nDetected at node 'a' defined at (most recent call last):\n"
    text += f"    File \"{users.__file__}\", line 2, in read\n      json\nNode: 'a'\nOOM"
    assert len(user_lines(tf.errors.InvalidArgumentError(None, None, text))) == 1
    assert user_lines(tf.errors.ResourceExhaustedError(None, None, text)) == []


def test_a_tasks_error_outside_the_users_code_has_its_location(tmp_path):
    error = _raised(lambda: Job.load(str(tmp_path / "job.json")))
    record = _record(error.with_traceback(error.__traceback__.tb_next), tmp_path)
    assert "job.py" in record["where"]
    assert record["todo"] == ""


# Keras's message for an error in a nested layer during fit.
WRAPPED = """in user code:

    File "/lib/site-packages/keras/src/engine/training.py", line 1442, in train_function  *
        for _ in tf.range(self._steps_per_execution):

    ValueError: 'outputs' must be defined before the loop
    Note: AutoGraph tried to define it automatically, but ran into a ValueError: Exception encountered.

    in user code:

        File "/lib/site-packages/keras/src/utils/traceback_utils.py", line 70, in error_handler  **
            raise e.with_traceback(filtered_tb) from None

        ValueError: Exception encountered when calling layer 'wrong' (type Wrong).

        in user code:

            File "{file}", line 15, in trained  *
                raise ValueError(x.name)

            my.errors.PixelError: bad pixel
                in row 3


        Call arguments received by layer 'wrong' (type Wrong):
          • training=True
"""


# Keras indents empty lines as well.
@pytest.mark.parametrize("empty", ["\n\n", "\n        \n"])
def test_an_error_in_a_nested_layer_is_reported_itself(users, tmp_path, empty):
    record = _record(ValueError(WRAPPED.replace("\n\n", empty).format(file=users.__file__)), tmp_path)
    assert (record["type"], record["what"]) == ("my.errors.PixelError", "bad pixel\n    in row 3")
    assert record["where"] == f'  File "{users.__file__}", line 15, in trained\n    raise ValueError(x.name)'
    assert record["todo"] == "fix the code above"


def test_keras_reason_is_reported_with_the_layer(tmp_path):
    text = (
        "Exception encountered when calling layer 'cut' (type Reshape).\n\nsizes differ:\n\n3072 and 100\n\n"
        "Call arguments received by layer 'cut' (type Reshape):\n  • inputs=tf.Tensor"
    )
    record = _record(ValueError(text), tmp_path)
    assert record["what"] == "layer 'cut' (type Reshape): sizes differ:\n\n3072 and 100"
    # In a converted function, indented.
    inner = text.replace("sizes differ:\n\n", "").replace("\n", "\n    ")
    converted = f'in user code:\n\n    File "/lib/site-packages/keras/a.py", line 1, in b\n\n    ValueError: {inner}'
    record = _record(ValueError(converted), tmp_path)
    assert (record["type"], record["what"]) == ("ValueError", "layer 'cut' (type Reshape): 3072 and 100")


@pytest.mark.parametrize("text", ["bad pixel", "in user code:\n\n    File", "", "a: b\n\n c: d"])
def test_any_other_text_is_reported_unchanged(text, tmp_path):
    record = _record(ValueError(text), tmp_path)
    assert (record["type"], record["what"]) == ("ValueError", text)


def test_the_failure_of_a_keras_loss_in_fit_is_reported_first(tmp_path):
    # As in a training task: the line that makes the model is not the one that fails.
    note_makers()
    model = tf.keras.Sequential([tf.keras.layers.Dense(3)])
    # Several steps in one call, as in a training.
    model.compile("sgd", tf.keras.losses.CategoricalHinge(), steps_per_execution=2)
    error = _raised(lambda: model.fit(tf.zeros([4, 3]), tf.zeros([4, 2]), batch_size=2, verbose=0))
    assert "must be defined before the loop" in str(error)
    record = _record(error.with_traceback(None), tmp_path)
    assert (record["type"], record["where"]) == ("ValueError", "")
    assert record["what"].startswith("Dimensions must be equal, but are 2 and 3")
