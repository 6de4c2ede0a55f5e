"""A fresh interpreter that finds the modules that this one finds. Standard library only."""

from __future__ import annotations

import os
import sys

from tfx_estimator.pipeline.user_source import loader
from tfx_estimator.pipeline.user_source.modules import package_parent


def words(statements: str) -> list[str]:
    """Returns a command that runs Python.

    Not `-m`, which puts the current folder first: a user's own `numpy.py` or `tfx.py` there would hide the real one.
    Nor may our folder be in front: where it is site-packages, a stray `models` or `data` there would hide the user's.
    And PYTHONPATH can hold no folder with a colon in its name.
    """
    own = loader.users_folders()
    others = [folder for folder in _folders() if folder not in own]
    first = f"import sys; sys.path[0] = {str(package_parent())!a}; import tfx_estimator; sys.path[:] = {others!a}"
    then = f"from tfx_estimator.pipeline.user_source import loader; loader.install({own!a})"
    return [sys.executable, "-c", f"{first}; {then}; {statements}"]


def python_path() -> str:
    """Returns a PYTHONPATH for what that process starts: it finds the same, but for folders with a colon."""
    return os.pathsep.join(folder for folder in _folders() if os.pathsep not in folder)


def _folders() -> list[str]:
    # Python looks into nothing else that may be among them, such as a Path.
    return list(dict.fromkeys(path or os.getcwd() for path in sys.path if isinstance(path, str)))
