"""The folder that a conversion writes, and the import of its network."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from types import ModuleType

from tfx_estimator.pipeline.base.files import PROOF as PROOF

NETWORK, WEIGHTS, MAPPING = "network", "weights.npz", "mapping.json"


@contextlib.contextmanager
def drafted(output: str) -> Iterator[str]:
    """Yields a folder that gets its name, `output`, at the end of the context, and is removed after an error."""
    draft = tempfile.mkdtemp(prefix=".converting-", dir=os.path.dirname(os.path.abspath(output)))
    try:
        yield draft
        os.chmod(draft, 0o755)
        os.rename(draft, output)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def load(folder: str) -> ModuleType:
    """Imports the network.py of a folder, without an entry in sys.modules."""
    spec = importlib.util.spec_from_file_location(NETWORK, os.path.join(folder, f"{NETWORK}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # The folder goes to the user, and must contain no __pycache__.
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module
