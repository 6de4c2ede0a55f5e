"""Whether a user's loss and optimizer fit together under several replicas is found out by a step of training."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[3]
CASES = Path(__file__).with_name("scaling_cases.py")
MODULE = {"module_path": "user_module@user.whl"}
MIRRORED = {"strategy": "mirrored", "devices": {"cpu": 2}}
WORKERS = {"strategy": "multi_worker_mirrored"}


def try_cases(strategy: str, *cases: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, str(CASES), strategy, *cases],
        capture_output=True,
        text=True,
        timeout=170,
        cwd=PROJECT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.cluster
@pytest.mark.timeout(180)
def test_right_pairings_are_trained_and_wrong_ones_refused_with_their_factor():
    right = ("mean adam minimize", "global keras updates", "v1-sum sgd minimize", "mean adam minimize dropout")
    # The weights of Adam do not show a wrong scale; its slots do.
    wrong = {
        "global adam minimize": "is 0.50 times that of one device: the loss is a sum, or divided by the global batch",
        "mean sgd apply": "is 2.00 times that of one device: the loss is a mean over each replica's own examples",
        "mean warm-up apply": "the loss is a mean over each replica's own examples",
        "mean sgd clip": "or each replica clips its gradients before they are added up",
        "global adam minimize dropout": "is 0.",
    }
    verdicts = try_cases("multi_worker_mirrored", *right, *wrong, "mean sgd minimize unseeded")
    for case in right:
        assert verdicts[case] == "right", case
    for case, told in wrong.items():
        assert told in verdicts[case], case
    # Every worker would shuffle in its own way.
    assert verdicts["mean sgd minimize unseeded"].startswith("right; TrainSpec.input_fn makes other batches each time")
    assert "use `minimize` of a tf.compat.v1.train optimizer" in verdicts["mean sgd apply"]
    assert "return the mean over the replica's own examples" in verdicts["global adam minimize"]


@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_what_trains_on_one_device_alone_is_refused_with_the_reason():
    verdicts = try_cases("central_storage", "global adam minimize", "global keras updates")
    assert "is 0.50 times" in verdicts["global adam minimize"]
    told = verdicts["global keras updates"]
    assert "trains on one device, but not under CentralStorageStrategy" in told
    assert "At least two variables have the same name" in told


@pytest.mark.unit
@pytest.mark.parametrize(
    ("train", "needed"),
    [
        (MIRRORED, True),
        (WORKERS, True),
        ({"strategy": "central_storage", "devices": {"cpu": 2}}, True),
        ({**WORKERS, "workers": 1}, False),
        ({"strategy": "mirrored", "devices": {"cpu": 1}}, False),
        ({"strategy": "one_device"}, False),
        ({"strategy": "parameter_server"}, False),
    ],
)
def test_only_replicas_that_train_in_step_need_a_probe(tmp_path, train, needed):
    assert is_needed(tmp_path, {"train": train}, MODULE) is needed


@pytest.mark.unit
def test_a_run_fn_needs_no_probe_and_a_verdict_holds_for_the_training_folder(tmp_path):
    from components.trainer.scaling_probe import MARKER

    assert is_needed(tmp_path, {"train": MIRRORED}, {"trainer_fn": "user.trainer_fn"})
    assert not is_needed(tmp_path, {"train": MIRRORED}, {"run_fn": "user.run_fn"})
    (tmp_path / MARKER).write_text("{}")
    assert not is_needed(tmp_path, {"train": MIRRORED}, {"trainer_fn": "user.trainer_fn"})


@pytest.mark.unit
def test_of_the_built_in_trainer_fn_only_a_users_whole_model_fn_needs_one(tmp_path, monkeypatch, declaration):
    from components.trainer.scaling_probe import BUILT_IN

    (tmp_path / "own_networks.py").write_text(
        "def model_fn(features, labels, mode): pass\ndef network(num_classes): pass\nunknown = lambda: None\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    asked = {}
    for name in (
        "own_networks:model_fn",
        "own_networks:network",
        "own_networks:unknown",
        "model_fn.networks:mnist_cnn",
    ):
        declared = declaration(model=name, distribution={"train": MIRRORED})
        asked[name.split(":")[1]] = is_needed(tmp_path, None, {"trainer_fn": BUILT_IN}, declared)
    assert asked == {"model_fn": True, "network": False, "unknown": True, "mnist_cnn": False}


def is_needed(
    folder: Path, distribution: dict[str, Any] | None, functions: dict[str, str], declared: Any = None
) -> bool:
    from components.trainer.job import Job
    from components.trainer.scaling_probe import is_needed
    from components.trainer.settings import SETTINGS_KEY, Settings

    settings = Settings(distribution_section=distribution, declaration=declared)
    config = json.dumps({SETTINGS_KEY: settings.to_dict()})
    return is_needed(Job("", "", {**functions, "custom_config": config}, str(folder)))
