"""Imports a written network."""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType

NETWORK = "network"


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
