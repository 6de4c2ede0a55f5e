"""Uses a written network.py in a process that has TensorFlow, Keras and nothing of this project.

    python process.py REQUEST RESULT

REQUEST is a pickle of the written folder, and of batches of training and evaluation; RESULT becomes one of what these
came to.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import numpy as np
import tensorflow as tf


def main(request: str, result: str) -> None:
    """Predicts, evaluates, and trains the next steps: by Keras, and by both parts of a cut step."""
    with open(request, "rb") as file:
        folder, types, train, evaluation = pickle.load(file)
    sys.path.insert(0, folder)
    # The folder goes to the user.
    sys.dont_write_bytecode = True
    import network  # type: ignore[import-not-found]

    model = network.Training()
    found: dict[str, Any] = {"metrics": {}, "predictions": []}
    for mode in network.PLACES:
        model.current(mode)
    for features, labels in map(tensors, evaluation):
        if "serve" in network.PLACES:
            answers = model.predict_step((features,))
            found["predictions"].append(tf.nest.map_structure(lambda each: each.numpy(), answers))
        if "eval" in network.PLACES:
            model.test_step((features, labels))
    if evaluation and "eval" in network.PLACES:
        found["metrics"] = {name: each.numpy() for name, each in model.of_mode["eval"].signatures["result"]().items()}
    # Without labels, a data set has features alone.
    types, batches = (types, train) if types[1] is not None else (types[:1], [each[:1] for each in train])
    data = tf.data.Dataset.from_generator(lambda: map(tensors, map(tuple, batches)), output_signature=tuple(types))
    history = model.fit(data, epochs=len(train), steps_per_epoch=1, verbose=0).history
    found["step"] = history["loss"], values(network, model.copies[0])
    if not network.UNCUT:
        copy = tf.saved_model.load(network.GRAPH, tags=["train", "replica"])
        losses = [float(two_parts(network, copy, *each)) for each in map(tensors, train)]
        found["cut"] = losses, values(network, copy)
    with open(f"{result}.draft", "wb") as draft:
        pickle.dump(found, draft)
    os.rename(draft.name, result)


def two_parts(network: Any, copy: Any, features: Any, labels: Any) -> tf.Tensor:
    """Trains a step as one replica does, and returns the loss."""
    given = dict(network.call(copy.signatures["gradients"], features, labels))
    loss = given.pop("loss")
    return loss + copy.signatures["apply"](**given)["zero"]


def tensors(batch: Any) -> Any:
    """Returns the tensors of a batch."""
    return tf.nest.map_structure(_tensor, batch)


def _tensor(value: Any) -> Any:
    if isinstance(value, tf.compat.v1.ragged.RaggedTensorValue):
        return tf.RaggedTensor.from_nested_row_splits(value.flat_values, value.nested_row_splits)
    return None if value is None else tf.compat.v1.convert_to_tensor_or_sparse_tensor(value)


def values(network: Any, copy: Any) -> dict[str, np.ndarray]:
    """Returns the variables of a training, by name."""
    return {network.name_of(each): each.numpy() for each in network.saved(copy)}


if __name__ == "__main__":
    main(*sys.argv[1:])
