"""Lets code of TensorFlow 1 see its own API: `import tensorflow` gives it `tensorflow.compat.v1`, with `tf.contrib`.

Only the importer sees it: TensorFlow itself, Keras and libraries of TensorFlow 2 go on importing TensorFlow 2.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import operator
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Optional

from tfx_estimator.model_fn.bridge.contrib import Contrib, MissingModuleError
from tfx_estimator.pipeline.base.errors import TfxEstimatorError, UserCodeError

_ROOT = "tensorflow"
# Packages that are written for TensorFlow 2, as are other installed ones whose names begin so.
_OF_TENSORFLOW_2 = ("tensorflow", "tf_keras", "keras", "tensorboard", "tfx", "tfx_estimator", "tf_slim")
# Modules of TensorFlow that both versions share.
_SHARED = ("python", "core", "compat")
# The folders that TensorFlow 2 keeps its API in.
_PUBLIC = re.compile(r"\._api\.v2(\.v2)?(?=\.|$)")
# Modules of `tensorflow.python` whose names later moved to others; tf.compat.v1 has them, but for two under others.
_SPLIT = (
    *("framework.ops", "ops.array_ops", "ops.control_flow_ops", "ops.math_ops", "ops.variable_scope", "ops.variables"),
    "util.nest",
)
_RENAMED = {"VariableV1": "Variable", "is_sequence": "nest.is_nested"}
# Decides whether an importing module, of these globals, sees TensorFlow 1.
Sees = Callable[[Mapping[str, Any]], bool]


class _TensorFlow1(ModuleType):
    """`tensorflow.compat.v1` under the name `tensorflow`, with what TensorFlow 1 had besides."""

    def __init__(self, tf: Any) -> None:
        super().__init__(_ROOT, tf.compat.v1.__doc__)
        self._v1 = tf.compat.v1
        self.contrib = Contrib()
        self.__version__, self.__path__, self.__file__ = tf.__version__, tf.__path__, tf.__file__
        for name in _SHARED:
            setattr(self, name, sys.modules[f"{_ROOT}.{name}"])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._v1, name)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *dir(self._v1)})


@functools.lru_cache(maxsize=1)
def tensorflow_1() -> ModuleType:
    """Returns the module that code of TensorFlow 1 gets for `import tensorflow`."""
    import tensorflow as tf
    import tensorflow.core
    import tensorflow.python

    for name in _SPLIT:
        module = importlib.import_module(f"{_ROOT}.python.{name}")
        vars(module)["__getattr__"] = functools.partial(_moved, tf.compat.v1, module.__name__)
    return _TensorFlow1(tf)


def _moved(v1: Any, module: str, name: str) -> Any:
    try:
        return operator.attrgetter(_RENAMED.get(name, name))(v1)
    except AttributeError:
        raise AttributeError(f"module {module!r} has no attribute {name!r}") from None


def is_foreign(importer: Mapping[str, Any]) -> bool:
    """Returns True if a module is of a program or a library that may be written for TensorFlow 1."""
    package = str(importer.get("__name__", "")).partition(".")[0]
    # site-packages or dist-packages: a program may have a `keras_utils.py` of its own.
    is_installed = "-packages" in str(importer.get("__file__", ""))
    return package not in _OF_TENSORFLOW_2 and not (is_installed and package.startswith(_OF_TENSORFLOW_2))


@functools.lru_cache(maxsize=1)
def show(sees: Sees = is_foreign) -> None:
    """Gives `import tensorflow` the API of TensorFlow 1 in the modules that `sees` names, from now on."""
    original, face = builtins.__import__, tensorflow_1()

    @functools.wraps(original)
    def imported(
        name: str,
        globals: Optional[Mapping[str, Any]] = None,
        locals: Optional[Mapping[str, Any]] = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        root, _, rest = name.partition(".")
        if level or root != _ROOT or not sees(globals or {}):
            return original(name, globals, locals, fromlist, level)
        if rest.partition(".")[0] in _SHARED:
            shared = original(name, globals, locals, fromlist, level)
            return shared if fromlist else face
        module: Any = face
        for part in rest.split(".") if rest else ():
            module = _child(module, part, name)
        if isinstance(module, Contrib):
            for each in fromlist or ():
                _child(module, each, name)
        return module if fromlist else face

    builtins.__import__ = imported


@contextlib.contextmanager
def shown(sees: Sees) -> Iterator[None]:
    """Does so in this context only."""
    original = builtins.__import__
    show.__wrapped__(sees)
    try:
        yield
    finally:
        builtins.__import__ = original


@contextlib.contextmanager
def behaviour(sees: Sees) -> Iterator[None]:
    """Shows TensorFlow 1 to the modules that `sees` names, and meanwhile turns TensorFlow 2's behaviour off."""
    v1 = tensorflow_1()
    show(sees)
    v1.disable_v2_behavior()
    try:
        yield
    finally:
        # TensorFlow asks for it.
        v1.reset_default_graph()
        v1.enable_v2_behavior()


def _child(module: Any, part: str, name: str) -> Any:
    try:
        return getattr(module, part)
    except TfxEstimatorError as error:
        raise MissingModuleError(error.what, expected=error.expected, todo=error.todo) from None
    except AttributeError:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name) from None


def lacks(error: BaseException, todo: str) -> Optional[UserCodeError]:
    """Returns the error of code that uses a name of TensorFlow 1 in TensorFlow 2; None if it failed otherwise."""
    if not (name := _name_of_1(error)):
        return None
    what = f"TensorFlow 2 has no {name}, and TensorFlow 1 had it"
    return UserCodeError(what, expected="code for TensorFlow 2", todo=todo)


def _name_of_1(error: BaseException) -> Optional[str]:
    if isinstance(error, ModuleNotFoundError):
        return error.name if (error.name or "").startswith(f"{_ROOT}.contrib") else None
    if not isinstance(error, AttributeError) or not error.name:
        return None
    owner: Any = tensorflow_1()
    if isinstance(error.obj, owner.compat.v2.data.Dataset):
        path, owner = f"{_ROOT}.data.Dataset", owner.data.Dataset
    elif isinstance(error.obj, ModuleType) and error.obj.__name__.partition(".")[0] == _ROOT:
        path = _PUBLIC.sub("", error.obj.__name__)
        for part in path.split(".")[1:]:
            owner = getattr(owner, part, None)
    else:
        return None
    return f"{path}.{error.name}" if hasattr(owner, error.name) else None


def place_of(error: BaseException) -> str:
    """Returns the last line that a program, not TensorFlow, ran before an error: `train.py, line 12`."""
    frame, line = [each for each in traceback.walk_tb(error.__traceback__) if is_foreign(each[0].f_globals)][-1]
    return f"{frame.f_code.co_filename}, line {line}"
