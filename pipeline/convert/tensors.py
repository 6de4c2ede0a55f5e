"""The tensors of an Estimator's checkpoint: weights, optimizer slots, and the step.

A slot is identified by the weight in its name, which is in the checkpoint as well; for a whole model_fn, by the graph.
Shapes are not used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Optional

import tensorflow as tf

from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.text import first_line

WEIGHT, SLOT, STEP, HYPERPARAMETER = "weight", "slot", "step", "hyperparameter"
GLOBAL_STEP = "global_step"


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor of a checkpoint.

    Args:
        name: In the checkpoint.
        kind: WEIGHT, also for state that no optimizer changes; SLOT; STEP; or HYPERPARAMETER of the optimizer.
        weight: For a slot, the name of its weight in the checkpoint.
        slot: Its name in the optimizer.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    weight: str = ""
    slot: str = ""


def read(checkpoint: str) -> tuple[tf.train.CheckpointReader, list[Tensor]]:
    """Opens a checkpoint, and lists its tensors.

    Args:
        checkpoint: Without its `.index`.

    Raises:
        UserCodeError: It cannot be read.
    """
    try:
        reader = tf.train.load_checkpoint(checkpoint)
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


def classify(tensors: Sequence[Tensor], slots: Mapping[str, tuple[str, str]], numbers: Collection[str]) -> list[Tensor]:
    """Returns the tensors with their kinds in a training graph.

    Args:
        slots: Weight and name in the optimizer, by the slot's name.
        numbers: Names of the optimizer's hyperparameters.
    """
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
