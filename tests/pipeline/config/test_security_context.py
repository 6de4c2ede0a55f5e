"""The section `deploy.security_context`: what pods say by it, and what is told of it where it reaches none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pipeline.runners.deployed import COMMON, OF_TARGET, OF_TFJOB, refused
from tests.root import ROOT
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.security_context import SecurityContext

pytestmark = pytest.mark.unit


def test_the_default_is_the_standard_restricted_and_the_images_user():
    context = SecurityContext()
    assert context.of_pod() == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "fsGroup": 10001,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert context.of_container() == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    made = Path(ROOT, "Dockerfile").read_text()
    # useradd's group has the same number.
    (uid,) = re.findall(r"useradd --uid (\d+) --create-home", made)
    assert (context.run_as_user, context.fs_group) == (int(uid), int(uid))
    assert re.findall(r"(?m)^USER (.*)$", made) == [uid]
    # Another uid has no name, and group 0.
    assert "chgrp 0 /work && chmod 0775 /work" in made
    assert re.findall(r"(?m)^ENV .*HOME=/work USER=(\S+) ", made) == ["tfx-estimator"]


def test_what_a_cluster_chooses_is_left_to_it_and_none_says_nothing():
    context = SecurityContext(run_as_user=None, fs_group=None)
    assert context.of_pod() == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert context.of_container() == SecurityContext().of_container()
    nothing = SecurityContext(standard="none", fs_group=5)
    assert (nothing.of_pod(), nothing.of_container()) == ({}, {})


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("deploy.security_context.standard=baseline", "one of restricted, none"),
        ("deploy.security_context=none", "with some of the keys standard, run_as_user, fs_group"),
        ("deploy.security_context.run_as_user=0", "out of range"),
        ("deploy.security_context.fs_group=-1", "out of range"),
        ("deploy.security_context.runAsUser=1000", "did you mean `run_as_user`?"),
        ("deploy.securityContext={fsGroup: 5}", "did you mean `security_context`?"),
    ],
)
def test_what_cannot_be(override, said):
    assert any(said in problem for problem in refused("", override))


def test_what_has_no_effect_is_told():
    said = "deploy.security_context={run_as_user: 5, fs_group: 5}"
    for target, reason in (("vertex", "Vertex AI has no pods of yours"), ("kubeflow_v2", "see docs/kubeflow.md")):
        (warning,) = load("digits", (*COMMON, *OF_TARGET[target], said), target).warnings
        assert "deploy.security_context.run_as_user, deploy.security_context.fs_group: no effect" in warning
        assert reason in warning
    assert not load("digits", (*COMMON, *OF_TARGET["kubeflow"], said), "kubeflow").warnings
    none = "deploy.security_context={standard: none, fs_group: 5}"
    (warning,) = load("digits", (*OF_TFJOB, none), "tfjob").warnings
    assert "deploy.security_context.fs_group: no effect: deploy.security_context.standard is none" in warning


def test_who_declares_nothing_is_told_what_the_pods_run_as():
    for target, whole in (("kubeflow", (*COMMON, *OF_TARGET["kubeflow"])), ("tfjob", OF_TFJOB)):
        (note,) = [note for note in load("digits", whole, target).notes if "security_context" in note]
        assert "is not declared: pods run as uid 10001, and volumes are of group 10001" in note
        mine = (*whole, "deploy.security_context.run_as_user=10001")
        assert not [note for note in load("digits", mine, target).notes if "security_context" in note]
    whole = (*COMMON, *OF_TARGET["vertex"])
    assert not [note for note in load("digits", whole, "vertex").notes if "security_context" in note]
