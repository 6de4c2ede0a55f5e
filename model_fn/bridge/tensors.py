"""The tensors of an Estimator's checkpoint: weights, optimizer slots, and the step.

A slot is identified by the weight in its name, which is in the checkpoint as well; for a whole model_fn, by the graph.
Shapes are not used.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.text import first_line

WEIGHT, SLOT, STEP, HYPERPARAMETER = "weight", "slot", "step", "hyperparameter"
GLOBAL_STEP = "global_step"
# The slot of a part of a cut variable, which canned Estimators name after the part.
_OF_PART = re.compile(r"(.+)/(?:t|part)_\d+/([^/]+)")


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor of a checkpoint.

    Args:
        kind: WEIGHT, also for state that no optimizer changes; SLOT; STEP; or HYPERPARAMETER of the optimizer.
        weight: For a slot, the name of its weight in the checkpoint.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    weight: str = ""
    slot: str = ""


@dataclasses.dataclass(frozen=True)
class Placed:
    """A tensor and its place.

    Args:
        place: In what is written; empty if it has none.
        factor: Multiplies its value.
    """

    tensor: Tensor
    place: str
    rule: str
    factor: float = 1.0

    def to_dict(self) -> dict[str, Any]:
        """Returns its entry in mapping.json."""
        tensor = self.tensor
        found = {"tensor": tensor.name, "kind": tensor.kind, "shape": list(tensor.shape)}
        return {**found, "place": self.place, "rule": self.rule}


class Reader:
    """Reads a checkpoint; the slots of a cut variable's parts as one, by the first one's name."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint, self._reader = checkpoint, tf.train.load_checkpoint(checkpoint)
        self._shapes = self._reader.get_variable_to_shape_map()
        parts: dict[str, list[str]] = collections.defaultdict(list)
        for name in sorted(self._shapes, key=lambda each: (len(each), each)):
            if match := _OF_PART.fullmatch(name):
                try:
                    self._reader.get_tensor(name)
                except ValueError:
                    parts[f"{match[1]} {match[2]}"].append(name)
        self._parts = {names[0]: names for names in parts.values()}
        for each in (each for names in parts.values() for each in names[1:]):
            del self._shapes[each]

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Returns the shapes of whole tensors, by name."""
        return self._shapes

    def get_tensor(self, name: str) -> np.ndarray:
        """Returns a tensor; of parts, joined along the first axis."""
        if not (names := self._parts.get(name)):
            return self._reader.get_tensor(name)
        size, *rest = self._shapes[name]
        # A partitioner gives what is left over to the first parts, as NumPy does.
        cuts = [f"{each[0]},{len(each)}" for each in np.array_split(range(size), len(names))]
        slices = [f"{' '.join(map(str, (size, *rest)))} {':'.join([cut, *'-' * len(rest)])}" for cut in cuts]
        types = [self._reader.get_variable_to_dtype_map()[name]] * len(names)
        given = {"prefix": self._checkpoint, "tensor_names": names, "shape_and_slices": slices, "dtypes": types}
        return np.concatenate(tf.raw_ops.RestoreV2(**given))


def read(checkpoint: str) -> tuple[Reader, list[Tensor]]:
    """Opens a checkpoint, and lists its tensors."""
    try:
        reader = Reader(checkpoint)
        shapes = reader.get_variable_to_shape_map()
        for name in shapes:
            # The index of a truncated data file is still complete.
            reader.get_tensor(name)
    except (tf.errors.OpError, ValueError, RuntimeError, IndexError) as error:
        raise UserCodeError(
            f"the checkpoint {checkpoint} cannot be read: {first_line(error)}",
            expected="its .index and all of its .data files, as they were written",
            todo="copy them again, or name another",
        ) from error
    return reader, sorted((_tensor(name, shapes) for name in shapes), key=lambda each: each.name)


def write_arrays(file: str, arrays: Iterable[tuple[str, np.ndarray]]) -> None:
    """Writes arrays like NumPy's `savez`, one at a time: all together may not fit in memory."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)


def classify(tensors: Sequence[Tensor], slots: Mapping[str, tuple[str, str]], numbers: Collection[str]) -> list[Tensor]:
    """Returns the tensors with their kinds in a training graph."""
    found = []
    for each in tensors:
        kind = SLOT if each.name in slots else HYPERPARAMETER if each.name in numbers else WEIGHT
        weight, slot = slots.get(each.name, ("", ""))
        found.append(each if each.kind == STEP else Tensor(each.name, each.shape, kind, weight, slot))
    return found


def _tensor(name: str, shapes: Mapping[str, Sequence[int]]) -> Tensor:
    shape = tuple(shapes[name])
    if name == GLOBAL_STEP:
        return Tensor(name, shape, STEP)
    weight = _weight_in(name, shapes)
    return Tensor(name, shape, SLOT, weight, name.rpartition("/")[2]) if weight else Tensor(name, shape, WEIGHT)


def _weight_in(name: str, names: Mapping[str, Sequence[int]]) -> Optional[str]:
    """Returns the weight in a name of the form OPTIMIZER/WEIGHT/SLOT; None for other names."""
    _, _, rest = name.partition("/")
    inner = rest.rpartition("/")[0]
    return inner if inner in names else None
