"""Calls what needs TensorFlow without importing it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Optional


def after_tensorflow(call: Callable[[], None]) -> None:
    """Calls a function now, or as soon as TensorFlow is imported."""
    if "tensorflow" in sys.modules:
        call()
    else:
        sys.meta_path.insert(0, _Finder(call))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself; calls the function once the module that the other finders found has been executed."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname != "tensorflow":
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute: Any = spec.loader.exec_module

            def execute_and_call(module: ModuleType) -> None:
                execute(module)
                self._call()

            spec.loader.exec_module = execute_and_call  # type: ignore[method-assign]
        return spec
