"""The supported sets of versions, and their differences. Standard library only."""

from __future__ import annotations

import dataclasses
import functools
import glob
import importlib.util
import os
import platform
import sys
from typing import Optional

from tfx_estimator.pipeline.base.installed import version_of

# With 1, `tf.keras` is tf_keras.
KERAS = "TF_USE_LEGACY_KERAS"


@dataclasses.dataclass(frozen=True)
class Stack:
    """Versions that were tested together, with their own lock file.

    Args:
        name: As in the names of its lock files: `tfx1.15`.
        pythons: The first and the last supported minor version of Python.
        glibc: The oldest version that its wheels support.
        has_estimator: Whether TensorFlow itself has tf.estimator.
        has_eval_saved_model: Whether TFMA writes and reads an EvalSavedModel.
        has_trainer_fn_executor: Whether TFX has its own executor for a trainer_fn.
    """

    name: str
    tfx: str
    tensorflow: str
    pythons: tuple[tuple[int, int], tuple[int, int]]
    glibc: tuple[int, int]
    has_estimator: bool
    has_eval_saved_model: bool
    has_trainer_fn_executor: bool

    @property
    def extra(self) -> str:
        """This package's extra that installs it; with `-locked`, in its exact versions."""
        return self.name.replace(".", "-")

    @property
    def lock(self) -> str:
        """The lock file for machines with GPUs and for notebooks."""
        return f"{self.name}.lock"

    @property
    def python_words(self) -> str:
        """Its Python versions as text: `3.11 to 3.13`."""
        return " to ".join(dict.fromkeys(".".join(map(str, version)) for version in self.pythons))

    @property
    def words(self) -> str:
        """A short description."""
        return f"{self.name}: TFX {self.tfx}, TensorFlow {self.tensorflow}"

    def is_of(self, tensorflow: str) -> bool:
        """Returns True if a version of TensorFlow has its major and minor number."""
        return tensorflow.split(".")[:2] == self.tensorflow.split(".")[:2]

    def has_python(self, version: tuple[int, ...]) -> bool:
        """Returns True if it supports a version of Python."""
        return self.pythons[0] <= version[:2] <= self.pythons[1]

    def has_glibc(self, version: str) -> bool:
        """Returns True if a version of glibc is recent enough for its wheels."""
        return tuple(int(part) for part in version.split(".") if part.isdigit()) >= self.glibc


LEGACY = Stack(
    name="tfx1.15",
    tfx="1.15.1",
    tensorflow="2.15.1",
    pythons=((3, 10), (3, 10)),
    glibc=(2, 28),
    has_estimator=True,
    has_eval_saved_model=True,
    has_trainer_fn_executor=True,
)
TODAY = Stack(
    name="tfx1.21",
    tfx="1.21.0",
    tensorflow="2.21.0",
    pythons=((3, 11), (3, 13)),
    # Required by the wheels of ml-metadata and TFDV.
    glibc=(2, 39),
    has_estimator=False,
    has_eval_saved_model=False,
    has_trainer_fn_executor=False,
)
STACKS = (TODAY, LEGACY)


@functools.lru_cache(maxsize=1)
def current() -> Stack:
    """Returns the stack of the installed TFX; without TFX, one for this glibc, if possible also for this Python."""
    tfx = version_of("tfx")
    for stack in STACKS:
        if tfx is not None and tfx.startswith(stack.name.removeprefix("tfx")):
            return stack
    possible = [stack for stack in STACKS if stack.has_glibc(platform.libc_ver()[1])] or [TODAY]
    return next((stack for stack in possible if stack.has_python(sys.version_info[:2])), possible[0])


def installed() -> Optional[Stack]:
    """Returns the stack of the installed TFX; None without TFX, where declarations can only be validated."""
    return current() if version_of("tfx") else None


def choose_keras() -> None:
    """Makes `tf.keras` Keras 2 in this process and its children if Keras 3 is installed, too.

    TFX 1.21 does the same, but may be imported after TensorFlow. Without tf_keras nothing changes.
    """
    if KERAS not in os.environ and importlib.util.find_spec("tf_keras") and has_keras_3():
        os.environ[KERAS] = "1"


def has_keras_3() -> bool:
    """Returns True if `import keras` is Keras 3; `version_of("keras")` would take 25 ms of every process."""
    keras = importlib.util.find_spec("keras")
    return keras is not None and bool(glob.glob(f"{os.path.dirname(keras.origin or '')}-3.*.dist-info"))
