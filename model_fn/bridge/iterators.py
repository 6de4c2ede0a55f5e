"""Finds the data set behind the tensors that an input_fn of TensorFlow 1 returns: `iterator.get_next()`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops, iterator_ops
from tensorflow.python.data.util import nest as data_nest
from tensorflow.python.util import nest


def call(input_fn: Callable[[], Any]) -> Any:
    """Calls an input_fn; for tensors of a one-shot iterator's `get_next()`, returns a data set of the same elements."""
    datasets: list[tuple[Any, Any]] = []
    elements: list[tuple[Any, list[Any]]] = []
    make_iterator, get_next = dataset_ops.DatasetV1._make_one_shot_iterator, iterator_ops.Iterator.get_next

    def record_iterator(dataset: Any) -> Any:
        datasets.append((make_iterator(dataset), dataset))
        return datasets[-1][0]

    def record_element(iterator: Any, name: Any = None) -> Any:
        element = get_next(iterator, name)
        elements.append((iterator, data_nest.flatten(element)))
        return element

    with (
        mock.patch.object(dataset_ops.DatasetV1, "_make_one_shot_iterator", record_iterator),
        mock.patch.object(iterator_ops.Iterator, "get_next", record_element),
    ):
        result = input_fn()
    # A data set would stack the tensors of a list.
    structure = tuple(result) if isinstance(result, list) else result
    leaves = nest.flatten(structure)
    for iterator, element in elements:
        found = [dataset for made, dataset in datasets if made is iterator]
        places = {id(leaf): place for place, leaf in enumerate(element)}
        if found and all(leaf is None or id(leaf) in places for leaf in leaves):
            break
    else:
        return result

    @tf.autograph.experimental.do_not_convert
    def pick(*components: Any) -> Any:
        flat = data_nest.flatten(components)
        return nest.pack_sequence_as(structure, [None if leaf is None else flat[places[id(leaf)]] for leaf in leaves])

    # That of TensorFlow 1 forgets how many elements there are.
    return dataset_ops.DatasetV2.map(found[0], pick)
