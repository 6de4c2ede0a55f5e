"""What a run_fn, which trains by itself, cannot be given."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit

RUN_FN = "def run_fn(fn_args): ...\n"


@pytest.mark.parametrize(
    ("module", "distribution", "wrong"),
    [
        (RUN_FN, "{train: {strategy: mirrored, devices: {cpu: 2}}}", ["train.strategy: mirrored"]),
        (RUN_FN, "{train: {strategy: tpu, tpu: t}}", ["train.strategy: tpu"]),
        (RUN_FN, "{eval: {strategy: mirrored}}", ["eval.strategy: mirrored"]),
        (RUN_FN, "{train: {strategy: parameter_server}, evaluator: true}", ["evaluator: true"]),
        (RUN_FN, "{train: {strategy: multi_worker_mirrored}}", []),
        (f"{RUN_FN}from elsewhere import *\n", "{train: {strategy: mirrored}}", []),
        (f"{RUN_FN}def trainer_fn(fn_args, schema): ...\n", "{train: {strategy: mirrored}}", []),
    ],
)
def test_what_a_run_fn_cannot_be_given_is_refused(write, problems, tmp_path, good, module, distribution, wrong):
    (tmp_path / "taxi.py").write_text(module)
    text = good.replace("model: mnist_cnn", "module_file: taxi.py")
    text += f"  distribution: {distribution}\n"
    if wrong:
        found = problems(text)
        assert [each.splitlines()[0].partition("trainer.distribution.")[2] for each in found] == wrong
        assert all("a run_fn" in each for each in found)
    else:
        write(text)
        load("mine.yaml")
