"""Variables of the environment with which TFX does not run, whatever the declaration says. Standard library only."""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Mapping

from tfx_estimator.pipeline.base.stack.stacks import KERAS, choose_keras

_WARNINGS, _DETERMINISTIC = "PYTHONWARNINGS", "TF_DETERMINISTIC_OPS"
# As TensorFlow reads them.
_BOOLS = ("0", "1", "false", "true")
_TRUE = ("1", "true", "True")
_WHY_NO_ERRORS = "TFX and TensorFlow warn themselves when they are imported, which would end them"
_dropped: dict[str, str] = {}


def hindering(environment: Mapping[str, str]) -> dict[str, str]:
    """Finds what stands in the way.

    Args:
        environment: Of a process.

    Returns:
        Of each such variable, why it is left out.
    """
    found = {}
    has_tf_keras = importlib.util.find_spec("tf_keras") is not None
    if KERAS in environment and (environment[KERAS] in _TRUE) is not has_tf_keras:
        found[KERAS] = (
            "this project is for Keras 2: that is tf_keras where it is installed, else keras of TensorFlow 2.15"
        )
    if any(_is_error(each) for each in environment.get(_WARNINGS, "").split(",")):
        found[_WARNINGS] = _WHY_NO_ERRORS
    if environment.get(_DETERMINISTIC, "0").lower() not in _BOOLS:
        found[_DETERMINISTIC] = (
            f"TensorFlow takes {', '.join(_BOOLS)}, and aborts at another value; trainer.deterministic declares it"
        )
    return found


def without_hindering(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment that a process of ours can work in.

    Args:
        environment: The given one.
    """
    left_out = hindering(environment)
    return {name: value for name, value in environment.items() if name not in left_out}


def clear() -> dict[str, str]:
    """Leaves out of this process's environment, and so of its children's, what stands in the way.

    Returns:
        Of each such variable, or option of Python's, why.
    """
    found = hindering(os.environ)
    for name in found:
        del os.environ[name]
    choose_keras()
    # Python has read them already; those of `-W` are there as well.
    if any(_is_error(each) for each in sys.warnoptions):
        if _WARNINGS not in found:
            found["-W error"] = _WHY_NO_ERRORS
        sys.warnoptions.clear()
        warnings.resetwarnings()
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)
    _dropped.update(found)
    return found


def cleared() -> dict[str, str]:
    """What `clear` has left out."""
    return dict(_dropped)


def _is_error(option: str) -> bool:
    action = option.strip().partition(":")[0].strip()
    return bool(action) and "error".startswith(action)
