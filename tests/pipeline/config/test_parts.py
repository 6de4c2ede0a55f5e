"""The number of parts of a batch that run in parallel, and of their threads."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config import runtime
from tfx_estimator.pipeline.config.trainer import TrainerSection

AUTO = {"model": "mnist_cnn", "parallel_parts": "auto"}


def _declare(**declared: object) -> TrainerSection:
    return TrainerSection.parse_obj({"train_steps": 9, **declared})


@pytest.fixture
def cpus(monkeypatch: pytest.MonkeyPatch):
    for name in ("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"):
        monkeypatch.delenv(name, raising=False)
    return lambda count: monkeypatch.setattr(runtime, "available_cpus", lambda: count)


@pytest.mark.parametrize(
    ("count", "declared", "expected"),
    [
        (1, AUTO, 1),
        (4, AUTO, 4),
        (64, {**AUTO, "model": "cifar_cnn", "global_batch_size": 1024}, 8),
        # At least 16 examples each.
        (4, {**AUTO, "global_batch_size": 40}, 2),
        (64, {**AUTO, "global_batch_size": 64, "gradient_accumulation": 2}, 2),
        (4, {**AUTO, "global_batch_size": 1}, 1),
        (4, {**AUTO, "distribution": {"train": "mirrored:2"}}, 2),
        (4, {**AUTO, "distribution": {"train": "multi_worker_mirrored:2"}}, 4),
        (8, {**AUTO, "threads": {"inter_op": 3}}, 3),
        (1, {"model": "mine:net", "parallel_parts": 3}, 3),
        # Not where examples may depend on each other, or another technique computes the step.
        (4, {**AUTO, "model": "mine:net"}, 1),
        (4, {**AUTO, "model": "cifar_resnet9"}, 1),
        (4, {**AUTO, "xla": True}, 1),
        (4, {**AUTO, "pipeline_parallel": {"stages": 2, "microbatches": 2}}, 1),
        (4, {**AUTO, "distribution": {"train": {"strategy": "parameter_server", "workers": 2}}}, 1),
    ],
)
def test_auto_is_a_part_for_each_cpu_of_a_replica(cpus, count, declared, expected):
    cpus(count)
    assert runtime.parts_at_once(_declare(**declared)) == expected


def test_a_gpu_computes_whole_batches(cpus, monkeypatch):
    cpus(4)
    monkeypatch.setattr(runtime, "has_gpu", lambda: True)
    assert runtime.parts_at_once(_declare(**AUTO)) == 1
    assert runtime.parts_at_once(_declare(parallel_parts=5)) == 5
    assert _declare(parallel_parts=5).intra_op is None


def test_auto_is_at_most_the_exported_inter_op_threads(cpus, monkeypatch):
    cpus(8)
    for value, expected in (("3", 3), ("0", 8)):
        monkeypatch.setenv("TF_NUM_INTEROP_THREADS", value)
        assert runtime.parts_at_once(_declare(**AUTO)) == expected


@pytest.mark.parametrize(
    ("count", "declared", "threads"),
    [
        (4, AUTO, 1),
        (4, {"parallel_parts": 2, "distribution": {"train": "mirrored:2"}}, 1),
        # More CPUs than the parts keep busy.
        (64, AUTO, None),
        (4, {"parallel_parts": 2}, None),
        (1, AUTO, None),
        (4, {**AUTO, "model": "mine:net"}, None),
        (4, {**AUTO, "threads": {"intra_op": 2}}, 2),
    ],
)
def test_an_op_has_one_thread_where_parts_keep_the_cpus_busy(cpus, count, declared, threads):
    cpus(count)
    section = _declare(**declared)
    assert section.intra_op == threads
    assert section.environment.get("TF_NUM_INTRAOP_THREADS") == (str(threads) if threads else None)


def test_exported_intra_op_threads_take_precedence(cpus, monkeypatch):
    cpus(4)
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "3")
    assert _declare(**AUTO).environment == {}
