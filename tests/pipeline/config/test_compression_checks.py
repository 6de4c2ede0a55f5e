"""`gradient_compression` beside code that adds up its gradients by itself."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.unit

HEAD = "name: mine\ndata:\n  dataset: mnist\ntrainer:\n  train_steps: 500\n"
TRAIN = "  distribution: {train: {strategy: multi_worker_mirrored, gradient_compression: bf16}}\n"
OWN = "def model_fn(features, labels, mode, params): ...\ndef trainer_fn(fn_args, schema): ...\n"


@pytest.mark.parametrize("trained", ["model: own:model_fn", "module_file: own.py"])
def test_it_is_of_the_built_in_step(problems, tmp_path, trained):
    (tmp_path / "own.py").write_text(OWN)
    (problem,) = problems(f"{HEAD}  {trained}\n{TRAIN}")
    assert "trainer.distribution.train.gradient_compression: bf16" in problem
    assert "it is for the built-in training step" in problem


def test_nccl_adds_up_no_bfloat16(problems):
    train = "{strategy: mirrored, devices: {gpu: 2}, cross_device_ops: nccl, gradient_compression: %s}"
    (problem,) = problems(f"{HEAD}  model: mnist_cnn\n  distribution: {{train: {train % 'bf16'}}}\n")
    assert "NcclAllReduce adds up float16, float32 and float64, and no bfloat16" in problem
