"""What tells the places of weights that their names do not tell."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Optional

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.yaml_text import read_yaml
from tfx_estimator.pipeline.convert.tensors import Tensor


@dataclasses.dataclass(frozen=True)
class Guide:
    """What tells the places of weights that their names do not.

    Args:
        patterns: Of `--map`: the place, by a regular expression of the tensor's name; None leaves the tensor out.
        trained: The trained variables of a model_fn, in the order of their creation.
        others: Its other ones.
    """

    patterns: Mapping[str, Optional[str]] = dataclasses.field(default_factory=dict)
    trained: Sequence[str] = ()
    others: Sequence[str] = ()

    def of(self, name: str) -> Optional[tuple[str, Optional[str]]]:
        """The first of the patterns that a tensor's whole name fits, and its place by that; None of none."""
        for pattern, place in self.patterns.items():
            if found := re.fullmatch(pattern, name):
                return pattern, place if place is None else found.expand(place)
        return None

    def left_out(self, tensor: Tensor) -> bool:
        """Is the tensor to have no place; nor is a slot of one."""
        return (found := self.of(tensor.weight or tensor.name)) is not None and found[1] is None


def read_map(file: str) -> dict[str, Optional[str]]:
    """Reads the file of `--map`.

    Raises:
        DeclarationError: It cannot be read, or is no mapping of regular expressions to places.
    """
    try:
        with open(os.path.expanduser(file), encoding="utf-8") as opened:
            document = read_yaml(opened.read(), one_line(file))
    except (OSError, UnicodeDecodeError) as error:
        raise _no_map(f"--map: {one_line(file)} cannot be read: {one_line(str(error))}") from error
    for problem in document.problems:
        raise _no_map(f"--map: {problem.where}: {problem.what}")
    found = document.value
    if not isinstance(found, dict) or not all(isinstance(each, (str, type(None))) for each in found.values()):
        raise _no_map(f"--map: {one_line(file)} is no mapping of texts")
    for pattern in found:
        try:
            re.compile(pattern)
        except re.error as error:
            raise _no_map(f"--map: {one_line(pattern)} is no regular expression: {error}") from error
    return found


def _no_map(what: str) -> DeclarationError:
    return DeclarationError(
        what,
        expected="YAML, a line for each tensor or several: a regular expression of its name, and its place in the "
        "Keras model, or null to leave it out",
        todo=r"write it as `'block(\d)/weights': 'conv\1/kernel'`",
    )
