"""A trial step shows whether a user's loss and optimizer fit together under several replicas."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from tests.components.trainer.conftest import Codes
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.replica_check import verdict
from tfx_estimator.components.trainer.settings import BUILT_IN_TRAINER_FN, Settings

CASES = Path(__file__).with_name("cases.py")
MODULE = {"module_path": "user_module@user.whl"}
L2 = "global sgd apply l2"
WHOLE = "global batch 64: TrainSpec.input_fn makes 32 for each of 2 replicas"
MIRRORED = {"strategy": "mirrored", "devices": {"cpu": 2}}
WORKERS = {"strategy": "multi_worker_mirrored"}


def try_cases(codes: Codes, strategy: str, *cases: str) -> dict[str, str]:
    """Returns the verdict of each case."""
    return {case: result for case, (result, _) in with_batches(codes, strategy, *cases).items()}


def with_batches(codes: Codes, strategy: str, *cases: str) -> dict[str, tuple[str, str]]:
    """Returns each case's verdict and its global batch."""
    return {case: (result, batch) for case, result, batch in codes.answers(str(CASES), strategy, *cases)}


def check(verdicts: dict[str, str], right: dict[str, str], wrong: dict[str, str]) -> None:
    for case, result in right.items():
        assert verdicts[case].startswith(result), (case, verdicts[case])
        assert (verdicts[case] == "right") == (result == "right"), (case, verdicts[case])
    for case, result in wrong.items():
        assert result in verdicts[case], (case, verdicts[case])


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_replicas_with_whole_batches_are_right_if_they_equal_one_device_with_one_or_all_of_these(codes):
    right = {
        # As in TensorFlow's multi-worker tutorial.
        "global sgd minimize fixed": ("right", WHOLE),
        "global sgd minimize per_replica": ("right", f"{WHOLE} (trainer.distribution.input_batch: per_replica)"),
        "global sgd apply fixed": (
            "right; under 2 replicas with 32 examples each the update of `dense/kernel` is 2.00 times that of one "
            "device with 32: it equals that of one device with 64",
            WHOLE,
        ),
    }
    wrong = {"mean sgd apply fixed": "is 2.00 times that of one device: the loss is a mean over each replica's own"}
    found = with_batches(codes, "multi_worker_mirrored", *right, *wrong)
    assert {case: found[case] for case in right} == right
    check({case: result for case, (result, _) in found.items()}, {}, wrong)


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_an_apply_gradients_that_adds_up_no_gradients_gets_those_of_all_replicas(codes):
    # With batches of their own, too; a batch normalisation's statistics may differ between replicas.
    wrong, norm = "mean sgd hand", "mean assigning-warm-up apply per_replica norm"
    right = ("mean assigning apply", "mean calling apply", "mean reducing minimize", "global overriding apply")
    right += ("v1-sum assigning minimize",)
    verdicts = try_cases(codes, "multi_worker_mirrored", wrong, norm, *right)
    assert "the copies of `dense/kernel`, `dense/bias`, `" in verdicts.pop(wrong)
    assert verdicts.pop(norm).startswith("right")
    assert set(verdicts.values()) == {"right"}


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(480)
def test_right_pairings_are_trained_and_wrong_ones_refused_with_the_reason(codes):
    right = {
        "mean adam minimize": "right",
        "global keras updates": "right",
        "mean warm-up minimize": "right",
        "v1-sum sgd minimize own": "right; all workers train with the same examples",
        "mean sgd minimize dropout": "right; under 2 replicas the first update of `",
        "mean sgd minimize norm": "right; each replica computes something over its own part of the batch, such as the",
        "mean sgd minimize gpu": "right; whether its loss is scaled right is not known: the trial runs on a CPU, where",
        # Twice the regularisation.
        L2: "right; under 2 replicas the first update of `dense",
        # Each worker makes its own optimizer.
        "mean keras updates outside": "right; whether its loss is scaled right is not known: the trial runs in one",
    }
    half = "is 0.50 times that of one device: the loss is a sum, or divided by the global batch"
    wrong = {
        # Adam's weights do not show a wrong scale; its slots do. Others have slots of squares.
        "global adam minimize": half,
        "global adagrad minimize": half,
        "global ftrl minimize": half,
        # With the same examples: with different ones per replica, the statistics hide the factor.
        "global adam minimize norm": half,
        "mean adadelta updates": "is 2.00 times that of one device",
        "mean sgd apply": "the loss is a mean over each replica's own examples",
        "mean sgd clip": "or each replica clips its gradients before they are added up",
        "mean sgd minimize unseeded": "TrainSpec.input_fn makes different batches in each call",
        "mean sgd minimize reordered": "nondeterministic order (ParallelInterleaveDatasetV4 with deterministic=False)",
    }
    verdicts = try_cases(codes, "multi_worker_mirrored", *right, *wrong)
    check(verdicts, right, wrong)
    assert verdicts["mean sgd minimize dropout"].endswith("; chance")
    # An update that is neither equal nor off by the number of replicas is trained, and its ratio shown.
    number = re.search(r"` is (\S+) times as large as on one device, and differs from it by (\S+) %", verdicts[L2])
    assert number, verdicts[L2]
    ratio, percent = map(float, number.groups())
    assert abs(ratio - 1) <= percent / 100 < 0.1


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_an_evaluation_with_different_results_is_refused(codes):
    wrong = {
        "global sgd apply": "the evaluation's `loss` is 0.50 times that of one device: it is a sum",
        "mean sgd minimize positives": "the evaluation's `positives` is 0.50 times that of one device",
    }
    # Unpatched TensorFlow would report half of the `accuracy_baseline`.
    right = ("mean sgd minimize canned", "global sgd apply fixed", "mean sgd minimize positives fixed")
    verdicts = try_cases(codes, "evaluation", *right, "mean sgd minimize gpu", *wrong)
    # Replicas that each take their own batch report the same as one device.
    assert {verdicts[case] for case in right} == {"right"}
    assert verdicts["mean sgd minimize gpu"].startswith("right; whether its evaluation under several replicas is that")
    check(verdicts, {}, wrong)


@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_code_that_only_trains_on_one_device_is_refused_with_the_reason(codes):
    verdicts = try_cases(codes, "central_storage", "global adam minimize", "global keras updates", "mean adam alone")
    assert "is 0.50 times" in verdicts["global adam minimize"]
    # TensorFlow lists its slots twice there: see `estimator.patches`.
    assert verdicts["global keras updates"] == "right"
    for words in ("trains on one device, but not under CentralStorageStrategy", "this code knows of one device"):
        assert words in verdicts["mean adam alone"]


@pytest.mark.parametrize(
    ("distribution", "needed"),
    [
        ({"train": MIRRORED}, True),
        ({"train": WORKERS}, True),
        ({"train": {"strategy": "central_storage", "devices": {"cpu": 2}}}, True),
        ({"train": {**WORKERS, "workers": 1}}, False),
        ({"train": {"strategy": "mirrored", "devices": {"cpu": 1}}}, False),
        ({"train": {"strategy": "one_device"}}, False),
        ({"train": {"strategy": "parameter_server"}}, False),
        ({"eval": MIRRORED}, True),
        ({"eval": {"strategy": "mirrored"}}, False),
    ],
)
def test_only_synchronous_replicas_need_a_check_and_only_once(tmp_path, distribution, needed):
    assert is_needed(tmp_path, distribution, MODULE) is needed
    assert verdict.read(str(tmp_path)) == {}
    verdict.write(str(tmp_path), ["a note"])
    assert not is_needed(tmp_path, distribution, MODULE)
    assert verdict.read(str(tmp_path)) == {"notes": ["a note"], "batch": ""}


def test_an_acknowledged_verdict_is_no_warning(tmp_path):
    verdict.write(str(tmp_path), ["by chance", "another"], chance=["by chance"])
    found = verdict.read(str(tmp_path))
    assert [level for _, level in verdict.notes(found, [])] == [logging.WARNING] * 2
    assert list(verdict.notes(found, ["dropout"])) == [("by chance", logging.INFO), ("another", logging.WARNING)]
    # From an earlier release.
    assert list(verdict.notes({"notes": ["a note"]}, ["dropout"])) == [("a note", logging.WARNING)]


def test_unnamed_devices_are_all_gpus(tmp_path, monkeypatch):
    unnamed = {"train": {"strategy": "mirrored"}}
    for visible, needed in (("", False), ("0", False), ("0,1", True)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert is_needed(tmp_path, unnamed, MODULE) is needed


def test_with_the_built_in_trainer_fn_only_a_users_model_fn_needs_one(importable, declaration):
    (importable / "own_networks.py").write_text(
        "def model_fn(features, labels, mode): pass\ndef network(num_classes): pass\nunknown = lambda: None\n"
    )
    needed = {}
    for name in ("own_networks:model_fn", "own_networks:network", "own_networks:unknown", "mnist_cnn"):
        declared = declaration(model=name, distribution={"train": MIRRORED})
        needed[name.split(":")[-1]] = is_needed(importable, None, {"trainer_fn": BUILT_IN_TRAINER_FN}, declared)
    assert needed == {"model_fn": True, "network": False, "unknown": True, "mnist_cnn": False}


def is_needed(
    folder: Path, distribution: dict[str, Any] | None, functions: dict[str, str], declared: Any = None
) -> bool:
    settings = Settings(arguments={"distribution": distribution}, declaration=declared)
    return verdict.is_needed(Job("", "", functions, str(folder), settings))
