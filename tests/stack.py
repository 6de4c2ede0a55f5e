"""What the stack that the tests run on has not: tests of that are skipped, with the reason."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement

from tests.root import ROOT
from tfx_estimator.pipeline.base.stack import stacks

HERE = stacks.current()
# Names a command, as `python` of an environment of the other stack: it finds this project, and the same files.
OTHER_PYTHON = "TFX_ESTIMATOR_OTHER_PYTHON"
needs_estimator_template = pytest.mark.skipif(
    not HERE.has_estimator, reason=f"TFX {HERE.tfx} has no template of an Estimator"
)
needs_keras_3 = pytest.mark.skipif(not HERE.has_keras_3, reason=f"TFX {HERE.tfx} has no Keras 3 beside it")


def pins(stack: stacks.Stack, kind: str = "") -> list[str]:
    """Returns `name==version` of what a lock file of a stack has for this Python: of kind `-dev`, `-image` or none."""
    text = (ROOT / "requirements" / f"{stack.name}{kind}.lock").read_text()
    found = map(Requirement, re.findall(r"^[\w.-]+==[^\\\n]+", text, re.MULTILINE))
    return [f"{each.name}{each.specifier}" for each in found if each.marker is None or each.marker.evaluate()]
