"""What presets compile to."""

from __future__ import annotations

import re

import pytest

from tests.pipeline.runners.deployed import COMMON, IMAGE, OF_TARGET, OF_TFJOB
from tfx_estimator.pipeline import presets
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.targets import TARGETS, TFJOB, VERTEX

pytestmark = pytest.mark.golden

PRESETS = [("digits", target) for target in TARGETS] + [
    pytest.param(name, VERTEX, marks=pytest.mark.long) for name in presets.names() if name != "digits"
]


@pytest.mark.parametrize(("name", "target"), PRESETS)
def test_the_compiled_preset(golden, name, target):
    from tfx_estimator.pipeline.runners.compiling import compile_declaration

    text = compile_declaration(load(name, (*COMMON, *OF_TARGET[target]), target), target).text
    # Fingerprints of the source change with every change of it, those of data once they are downloaded here.
    digest = IMAGE.rpartition(":")[2]
    text = re.sub(r"\b[0-9a-f]{64}\b", lambda found: digest if found[0] == digest else "FINGERPRINT", text)
    golden(f"compiled/{name}.{target}.{'json' if target == VERTEX else 'yaml'}", text)


def test_the_compiled_tfjob(golden):
    from tfx_estimator.pipeline.runners.compiling import compile_declaration

    golden("compiled/digits.tfjob.yaml", compile_declaration(load("digits", OF_TFJOB, TFJOB), TFJOB).text)
