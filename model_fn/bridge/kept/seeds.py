"""Seeds for the random operations that a model_fn leaves unseeded: fixed for the proof, and then taken away."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import random_seed

# The graph's seed of an operation that has none of its own.
_MADE = 1_735_928_559


@contextlib.contextmanager
def fixed() -> Iterator[None]:
    """Seeds the operations that are created in this context without a seed, by their order."""
    get_seed, count = random_seed.get_seed, itertools.count(1)

    def given(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        found = get_seed(*args, **kwargs)
        return (_MADE, next(count)) if found == (None, None) else found

    with mock.patch.object(random_seed, "get_seed", given):
        yield


def take_away(folder: str) -> None:
    """Removes these seeds from a SavedModel."""
    path = os.path.join(folder, "saved_model.pb")
    with open(path, "rb") as file:
        saved = saved_model_pb2.SavedModel.FromString(file.read())
    for graph in (each.graph_def for each in saved.meta_graphs):
        for node in (*graph.node, *(node for function in graph.library.function for node in function.node_def)):
            if "seed" in node.attr and node.attr["seed"].i == _MADE:
                node.attr["seed"].i = node.attr["seed2"].i = 0
    with open(path, "wb") as file:
        file.write(saved.SerializeToString(deterministic=True))
