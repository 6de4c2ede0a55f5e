"""The machines of the section `deploy`: GPUs that training needs, and settings without effect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pipeline.runners.deployed import COMMON, OF_STEP_IN_PODS, OF_TARGET, OF_TFJOB, refused
from tests.root import ROOT
from tests.stack import HERE
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.platforms.training_jobs.manifest import USER

_GROUP = "deploy.pod_patch={spec: {securityContext: {fsGroup: 5}}}"


@pytest.mark.parametrize(
    ("target", "override", "text"),
    [
        ("vertex", "deploy.vertex={}", "deploy.nodes.Trainer.cpu, deploy.nodes.Trainer.memory_gb"),
        ("kubeflow", "deploy.nodes.Tuner.cpu=4", "deploy.nodes.Tuner.cpu: no effect: there is no section `tune`"),
        ("tfjob", "deploy.nodes.Pusher={cpu: 1}", "deploy.nodes.Pusher.cpu: no effect: the chief runs every"),
    ],
)
def test_settings_without_effect_have_a_warning(target, override, text):
    whole = OF_TFJOB if target == "tfjob" else (*COMMON, *OF_TARGET[target])
    (warning,) = load("digits", (*whole, override), target).warnings
    assert text in warning
    assert not load("digits", whole, target).warnings
    assert not load("digits", (*OF_TFJOB, _GROUP), "tfjob").warnings


TWO_WORKERS = "trainer.distribution={train: {strategy: multi_worker_mirrored, workers: 2, devices: {gpu: 2}}}"
FOUR_GPUS = "trainer.distribution.train={strategy: mirrored, devices: {gpu: 4}}"
THE_FOURTH = "trainer.distribution.train={strategy: mirrored, devices: {gpu: [0, 3]}}"
_T4, _GPU = "accelerator: NVIDIA_TESLA_T4", "accelerator: nvidia.com/gpu"
_NODE, _MACHINE = "deploy.nodes.Trainer={%s}", "deploy.vertex={machine: {%s}}"
_WORKER = f"deploy.vertex={{machine: {{{_T4}, accelerators: 2}}, worker: {{%s}}}}"


@pytest.mark.parametrize(
    ("target", "distribution", "place", "too_few", "text"),
    [
        ("vertex", FOUR_GPUS, _MACHINE, _T4, "each chief of the custom job needs 4 GPUs, and has 1"),
        (
            "vertex",
            TWO_WORKERS,
            _WORKER,
            f"{_T4}, accelerators: 1",
            "each worker of the custom job needs 2 GPUs, and has 1",
        ),
        ("vertex", TWO_WORKERS, _NODE, f"{_T4}, accelerators: 2", "the step Trainer needs 4 GPUs, and has 2"),
        ("kubeflow", FOUR_GPUS, _NODE, "cpu: 2", "the step Trainer needs 4 GPUs, and has none"),
        ("kubeflow", THE_FOURTH, _NODE, f"{_GPU}, accelerators: 3", "the step Trainer needs 4 GPUs, and has 3"),
        ("kubeflow", FOUR_GPUS, _NODE, "accelerator: google.com/tpu, accelerators: 8", "needs 4 GPUs, and has none"),
    ],
)
def test_too_few_gpus_for_training_are_refused(target, distribution, place, too_few, text):
    whole = (*COMMON, *OF_TARGET[target], "deploy.nodes.Trainer=null", "trainer.global_batch_size=64", distribution)
    (problem,) = refused(target, *whole, place % too_few)
    assert text in problem
    assert "devices.gpu: " in problem
    kind, needed = _T4 if target == "vertex" else _GPU, text.partition("needs ")[2][0]
    load("digits", (*whole, place % f"{kind}, accelerators: {needed}"), target)
    load("digits", (*whole, place % too_few))


FOUR_WORKERS = "trainer.distribution.train={strategy: multi_worker_mirrored, workers: 4}"


@pytest.mark.parametrize("target", ["vertex", "kubeflow"])
def test_a_cluster_in_one_container_has_a_note_and_a_gpu_for_each_process_or_none(target):
    kind = _T4 if target == "vertex" else _GPU
    # The step has two accelerators.
    whole = (*COMMON, *OF_TARGET[target], "trainer.global_batch_size=64")
    (problem,) = refused(target, *whole, FOUR_WORKERS)
    assert "trainer.distribution.train.workers: 4 the step Trainer has 2 GPUs for the 4 processes" in problem
    assert "set deploy.nodes.Trainer.accelerators: 4" in problem
    enough = f"deploy.nodes.Trainer={{{kind}, accelerators: 4}}"
    for more in ((enough,), ("deploy.nodes.Trainer={cpu: 8}",), ("trainer.distribution.train.devices={cpu: 1}",)):
        (note,) = [each for each in load("digits", (*whole, FOUR_WORKERS, *more), target).notes if "processes" in each]
        assert note.startswith("trainer.distribution: 4 processes share one container, that of the step Trainer")
    evaluator = ("trainer.distribution.evaluator=true", "trainer.distribution.eval.devices={gpu: 1}")
    assert any(" 5 processes" in each for each in refused(target, *whole, FOUR_WORKERS, enough, *evaluator))
    load("digits", (*whole, FOUR_WORKERS))
    assert not [each for each in load("digits", whole, target).notes if "processes" in each]
    if target == "vertex":
        apart = load("digits", (*whole, FOUR_WORKERS, "deploy.vertex={}"), target)
        assert not [each for each in apart.notes if "processes" in each]
    else:
        pods = (*OF_STEP_IN_PODS, "trainer.global_batch_size=64", FOUR_WORKERS)
        assert not [each for each in load("digits", pods, target).notes if "processes" in each]


@pytest.mark.parametrize(
    ("target", "overrides", "expected"),
    [
        ("vertex", (), True),
        ("vertex", ("deploy.nodes.Trainer=null",), False),
        ("vertex", ("deploy.nodes.Trainer=null", f"deploy.vertex={{machine: {{{_T4}}}}}"), True),
        ("kubeflow", ("deploy.nodes.Trainer=null", f"deploy.nodes.Evaluator={{{_GPU}}}"), True),
        ("kubeflow", ("deploy.nodes.Trainer={accelerator: google.com/tpu}",), False),
        ("tfjob", (), True),
    ],
)
def test_a_note_asks_for_a_gpu_image_where_steps_have_gpus(target, overrides, expected):
    whole = OF_TFJOB if target == "tfjob" else (*COMMON, *OF_TARGET[target])
    notes = [note for note in load("digits", (*whole, *overrides), target).notes if f"LOCK={HERE.lock}" in note]
    assert len(notes) == expected


def test_gpus_of_a_tfjob_are_those_of_each_pod():
    servers = "{strategy: parameter_server, workers: 2, devices: {gpu: 2}}"
    cluster = f"trainer.distribution={{train: {servers}, evaluator: true}}"
    whole = (*OF_TFJOB, "deploy.nodes.Trainer=null", "deploy.tfjob.replicas={}", cluster)
    problems = refused("tfjob", *whole)
    assert len(problems) == 2
    for kind, problem in zip(("chief", "worker"), problems):
        assert f"devices.gpu: 2 each pod of {kind} needs 2 GPUs, and has none" in problem
    load("digits", (*whole, f"deploy.nodes.Trainer={{{_GPU}, accelerators: 2}}"), "tfjob")
    own = f"deploy.tfjob.replicas={{chief: {{{_GPU}, accelerators: 2}}, worker: {{{_GPU}, accelerators: 2}}}}"
    load("digits", (*whole, own), "tfjob")
    (problem,) = refused("tfjob", *whole, own, "trainer.distribution.eval={strategy: mirrored, devices: {gpu: 2}}")
    assert "each pod of evaluator needs 2 GPUs, and has none" in problem


def test_a_role_of_a_custom_job_takes_missing_values_from_machine():
    whole = (
        *(*COMMON, *OF_TARGET["vertex"], "trainer.global_batch_size=66"),
        "trainer.distribution={train: {strategy: parameter_server, workers: 2, ps: 1}, evaluator: true}",
        "deploy.vertex.machine={machine_type: n1-highmem-32, accelerator: NVIDIA_L4, accelerators: 2, disk_gb: 500}",
        "deploy.vertex.worker={accelerator: NVIDIA_TESLA_T4, accelerators: 4}",
        "deploy.vertex.ps={machine_type: n1-standard-8, accelerators: 0}",
        "deploy.vertex.evaluator={accelerators: 1}",
    )
    declaration = load("digits", whole, "vertex").declaration
    # Also as `show` prints it, with all nulls.
    for each in (declaration, type(declaration).from_json(declaration.to_json())):
        machines = each.deploy.vertex.machines(each.trainer.distribution)
        assert {role: tuple(machine.dict().values()) for role, (_, machine) in machines.items()} == {
            "chief": ("n1-highmem-32", "NVIDIA_L4", 2, 500),
            "worker": ("n1-highmem-32", "NVIDIA_TESLA_T4", 4, 500),
            "ps": ("n1-standard-8", None, None, 500),
            "evaluator": ("n1-highmem-32", "NVIDIA_L4", 1, 500),
        }
    (problem,) = refused("vertex", *whole, "deploy.vertex.machine={}", "deploy.vertex.evaluator={accelerators: 1}")
    assert "deploy.vertex.evaluator.accelerators: 1 the type of accelerator is missing" in problem


def test_a_step_takes_missing_values_from_the_default_of_nodes():
    nodes = ("deploy.nodes.default={cpu: 2, retries: 1}", "deploy.nodes.Trainer={cpu: 8}", "deploy.nodes.Pusher={}")
    declaration = load("digits", nodes).declaration
    for each in (declaration, type(declaration).from_json(declaration.to_json())):
        steps = [each.deploy.nodes.of(step) for step in ("Transform", "Trainer", "Pusher")]
        assert [(step.cpu, step.retries) for step in steps] == [(2, 1), (8, 1), (2, 1)]


def test_a_misspelled_key_is_answered_with_the_right_one():
    (problem,) = refused("", "deploy.imge=x")
    assert "did you mean `image`?" in problem


def test_a_tfjob_whose_pods_restart_without_limit_has_a_note():
    note = "the operator restarts killed pods, as after OOMKilled, without limit"

    def notes(*overrides: str, target: str = "tfjob") -> str:
        return "\n".join(load("digits", (*OF_TFJOB, *overrides), target).notes)

    assert note not in notes()
    assert note in notes("deploy.tfjob.active_deadline_seconds=null")
    for each in ("deploy.tfjob.restart_policy=OnFailure", "deploy.tfjob={restart_policy: Never}"):
        assert note not in notes("deploy.tfjob.active_deadline_seconds=null", "deploy.tfjob.backoff_limit=null", each)
    assert note not in notes("deploy.tfjob.active_deadline_seconds=null", target="")


def test_pods_have_the_images_user():
    made = Path(ROOT, "Dockerfile").read_text()
    # useradd's group has the same number.
    assert re.findall(r"useradd --uid (\d+) --create-home", made) == [str(USER)]
    assert re.findall(r"(?m)^USER (.*)$", made) == [str(USER)]
    # Another uid has no name, and group 0.
    assert "chgrp 0 /work && chmod 0775 /work" in made
    assert re.findall(r"(?m)^ENV .*HOME=/work USER=(\S+) ", made) == ["tfx-estimator"]
