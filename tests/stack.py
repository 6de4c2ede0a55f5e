"""Marks that skip tests of features that the running stack lacks."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement

from tests.root import ROOT
from tfx_estimator.pipeline.base.stack import stacks

HERE = stacks.current()
# Names a Python command of the other stack's environment that finds this project and the same files.
OTHER_PYTHON = "TFX_ESTIMATOR_OTHER_PYTHON"
needs_estimator_template = pytest.mark.skipif(
    not HERE.has_estimator, reason=f"TFX {HERE.tfx} has no template of an Estimator"
)
needs_keras_3 = pytest.mark.skipif(not stacks.has_keras_3(), reason=f"TFX {HERE.tfx} has no Keras 3")


def pins(stack: stacks.Stack, kind: str = "") -> list[str]:
    """Returns the `name==version` pins for this Python in a stack's lock file; `kind` is `-dev`, `-image` or empty."""
    text = (ROOT / "requirements" / f"{stack.name}{kind}.lock").read_text()
    found = map(Requirement, re.findall(r"^[\w.-]+==[^\\\n]+", text, re.MULTILINE))
    return [f"{each.name}{each.specifier}" for each in found if each.marker is None or each.marker.evaluate()]
