"""Packages of the image: none that only notebooks or developers need."""

from __future__ import annotations

import re

import pytest

from tests.root import ROOT
from tfx_estimator import __version__
from tfx_estimator.pipeline.base.stack.stacks import STACKS

pytestmark = pytest.mark.unit

_UNWANTED = re.compile(r"jupyter.*|notebook.*|ipy.*|nb.*|keyrings?(-.*)?|traitlets|jedi|pytest.*|ruff|mypy")


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: stack.name)
def test_the_image_has_neither_notebooks_nor_keyrings(stack):
    names = re.findall(r"^([\w.-]+)==", (ROOT / "requirements" / f"{stack.name}-image.lock").read_text(), re.MULTILINE)
    assert {"tfx", "tensorflow-cpu", "tensorflow-model-analysis", "pip"} <= {*names}
    assert [name for name in names if _UNWANTED.fullmatch(name)] == []


def test_its_label_is_the_release():
    (version,) = re.findall(r"image\.version=(\S+)", (ROOT / "Dockerfile").read_text())
    assert version == __version__
