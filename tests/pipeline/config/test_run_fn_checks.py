"""What a run_fn, which trains by itself, cannot be given."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit

RUN_FN = "def run_fn(fn_args): ...\n"
ESTIMATOR = """
import tensorflow as tf
def make(fn_args, schema): return {"estimator": tf.estimator.Estimator(1), "train_spec": 2, "eval_spec": 3}
def run_fn(fn_args): tf.estimator.train_and_evaluate(**make(fn_args, None))
"""


@pytest.mark.parametrize(
    ("module", "distribution", "wrong"),
    [
        (RUN_FN, "{train: {strategy: mirrored, devices: {cpu: 2}}}", []),
        (RUN_FN, "{train: {strategy: central_storage, devices: {cpu: 2}}}", []),
        (RUN_FN, "{train: {strategy: tpu, tpu: t}}", ["train.strategy: tpu"]),
        (RUN_FN, "{eval: {strategy: mirrored}}", ["eval.strategy: mirrored"]),
        (RUN_FN, "{train: {strategy: parameter_server}, evaluator: true}", ["evaluator: true"]),
        (RUN_FN, "{train: {strategy: multi_worker_mirrored}}", []),
        # TFX calls the run_fn, whatever there is beside it.
        (f"{RUN_FN}from elsewhere import *\n", "{eval: {strategy: mirrored}}", ["eval.strategy: mirrored"]),
        (
            f"{RUN_FN}def trainer_fn(fn_args, schema): ...\n",
            "{eval: {strategy: mirrored}}",
            ["eval.strategy: mirrored"],
        ),
        ("from elsewhere import *\ndef trainer_fn(fn_args, schema): ...\n", "{train: {strategy: mirrored}}", []),
        (ESTIMATOR, "{train: {strategy: multi_worker_mirrored}}", ["train.strategy: multi_worker_mirrored"]),
        (ESTIMATOR, "{train: {strategy: parameter_server}}", ["train.strategy: parameter_server"]),
        (ESTIMATOR, "{train: {strategy: mirrored, devices: {cpu: 2}}}", ["train.strategy: mirrored"]),
        (ESTIMATOR, "{max_restarts: 1}", []),
    ],
)
def test_what_a_run_fn_cannot_be_given_is_refused(write, problems, tmp_path, good, module, distribution, wrong):
    (tmp_path / "taxi.py").write_text(module)
    text = good.replace("model: mnist_cnn", "module_file: taxi.py")
    text += f"  distribution: {distribution}\n"
    if wrong:
        found = problems(text)
        assert [each.splitlines()[0].partition("trainer.distribution.")[2] for each in found] == wrong
        assert all("a run_fn" in each or "this run_fn" in each for each in found)
    else:
        write(text)
        load("mine.yaml")


def test_the_way_out_is_the_function_that_is_there(problems, tmp_path, good):
    (tmp_path / "taxi.py").write_text(ESTIMATOR)
    text = good.replace("model: mnist_cnn", "module_file: taxi.py")
    (found,) = problems(text + "  distribution: {train: {strategy: multi_worker_mirrored}}\n")
    assert "trains an Estimator (taxi.py:4: tf.estimator.train_and_evaluate)" in found
    assert "to do:    name a module file with the one line: from taxi import make as trainer_fn" in found
    # And it is one.
    (tmp_path / "line.py").write_text("from taxi import make as trainer_fn\n")
    load_with = text.replace("taxi.py", "line.py") + "  distribution: {train: {strategy: multi_worker_mirrored}}\n"
    (tmp_path / "line.yaml").write_text(load_with)
    assert load(tmp_path / "line.yaml").declaration.trainer.module_file.endswith("line.py")
