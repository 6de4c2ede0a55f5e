"""Checks of `deploy.labels`, by the rule of whoever takes them: Google Cloud, or Kubernetes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.targets import VERTEX

if TYPE_CHECKING:
    from tfx_estimator.pipeline.config.deploy import DeploySection

_PATH = "deploy.labels"
# Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/.
_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_PART = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_KEY, _VALUE = re.compile(rf"((?=[^/]{{1,253}}/){_PART}([.]{_PART})*/)?{_NAME}"), re.compile(rf"({_NAME})?")
_OF_KUBERNETES = (
    "a key as in Kubernetes, `team` or `example.com/team`, and a value of letters, digits, `.`, `_` and `-`, each of "
    "at most 63, from a letter or digit to another"
)
# Source: https://cloud.google.com/resource-manager/docs/labels-overview. Letters of other alphabets are letters.
_LETTERS, _DIGITS, _MOST = ("Ll", "Lo"), ("Nd", "Nl", "No"), 63
OF_GOOGLE = "letters of lower case, digits, `_` and `-`, at most 63, and the key from a letter on"
# Prefixes of labels that are set by whatever starts pods.
_TAKEN = ("tfx-estimator/", "training.kubeflow.org/", "pipelines.kubeflow.org/", "workflows.argoproj.io/")
# The limit of Vertex AI, and how many of the labels TFX and `submit` set by themselves.
_MOST_LABELS, _LABELS_OF_OURS = 64, 4


def check_labels(deploy: DeploySection, target: str) -> Iterator[Problem]:
    """Checks the section.

    Args:
        deploy: Typed values.
        target: Where the pipeline is to be deployed; empty takes what any target may take.

    Yields:
        The problems.
    """
    rules = {OF_GOOGLE: fits_google, _OF_KUBERNETES: fits_kubernetes}
    if target or deploy.tfjob.train:
        rules.pop(_OF_KUBERNETES if target == VERTEX else OF_GOOGLE)
    for key, value in deploy.labels.items():
        if not any(fits(key, value) for fits in rules.values()):
            what, expected = f"this is no label{f' of the target {target}' if target else ''}", "; or ".join(rules)
            yield Problem(_PATH, what, expected, "rename it", value=f"{key}: {value}")
        elif key.startswith(_TAKEN):
            what, expected = "a label of this kind is set by who starts the pods", "another prefix, or none"
            yield Problem(_PATH, what, expected, "rename it", value=f"{key}: {value}")
    if target == VERTEX and len(deploy.labels) > (most := _MOST_LABELS - _LABELS_OF_OURS):
        what = f"Vertex AI takes {_MOST_LABELS} labels of a job, {_LABELS_OF_OURS} of which TFX and `submit` set"
        yield Problem(_PATH, what, f"at most {most}", "remove some", value=str(len(deploy.labels)))


def fits_kubernetes(key: str, value: str) -> bool:
    """Is it a label of Kubernetes.

    Args:
        key: With or without a prefix.
        value: May be empty.
    """
    return bool(_KEY.fullmatch(key) and _VALUE.fullmatch(value))


def fits_google(key: str, value: str) -> bool:
    """Is it a label of Google Cloud.

    Args:
        key: As declared.
        value: May be empty.
    """
    begins = unicodedata.category(key[:1] or "_") in _LETTERS
    return begins and all(len(text) <= _MOST and all(map(_is_googles, text)) for text in (key, value))


def _is_googles(character: str) -> bool:
    return character in "_-" or unicodedata.category(character) in (*_LETTERS, *_DIGITS)
