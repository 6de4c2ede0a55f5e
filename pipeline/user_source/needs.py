"""The packages that the user's modules import."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tfx_estimator.pipeline.user_source.fingerprint import find_root, follow_imports
from tfx_estimator.pipeline.user_source.imports import imports, parse
from tfx_estimator.pipeline.user_source.modules import find_module, is_installed, is_project, is_source


def find_needs(target: str, search_paths: Sequence[str] = ()) -> dict[str, str]:
    """Finds the top-level packages that the user's modules import outside of `try`, `with` and `if`, by their text.

    Returns:
        The file and line of an import of each. A module that is not found here counts as a package.
    """
    _, paths = find_root(target, search_paths)
    found: dict[str, str] = {}
    for module, data in follow_imports(target, search_paths):
        tree = parse(data) if is_source(module) and not is_project(module) else None
        for each in imports(tree, module) if tree is not None else ():
            name = each.name.partition(".")[0]
            if name and not each.is_guarded and name not in sys.stdlib_module_names:
                top = find_module(name, paths)
                if top is None or is_installed(top):
                    found.setdefault(name, f"{module.file}:{each.line}")
    return found
