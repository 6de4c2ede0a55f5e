"""Registers s3:// in each process that imports TensorFlow."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Optional

from tfx_estimator.pipeline.base.s3 import is_installed


def register_with_tensorflow() -> None:
    """Registers s3:// in this process, now or as soon as TensorFlow is imported; without boto3 nothing changes."""
    if not is_installed():
        return
    if "tensorflow" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _AfterTensorFlow())


def _register() -> None:
    from tfx_estimator.pipeline.base.s3.plugin import register

    register()


class _AfterTensorFlow(importlib.abc.MetaPathFinder):
    """Finds nothing itself; registers s3:// once the module that the other finders found has been executed."""

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

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                _register()

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec
