"""The predicting model: inputs of its signatures, names of its classes, and calls."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2

from tfx_estimator.components.served_outputs import (
    Scores,
    choose_of_any,
    choose_scores,
    is_of_class,
    read_graphs,
    read_labels,
    read_outputs,
)
from tfx_estimator.data.features import IMAGE
from tfx_estimator.pipeline.base.errors import DataError, DeclarationError, PipelineError, UserCodeError
from tfx_estimator.pipeline.base.text import first_line, one_line
from tfx_estimator.pipeline.predict.features import Feature, parsed_features
from tfx_estimator.pipeline.predict.found_model import FILE, FoundModel
from tfx_estimator.pipeline.predict.inputs import RowFile
from tfx_estimator.pipeline.user_data.reading import listed as listing

_SERVE = "serve"
# Preferred signatures, in order.
_FIRST = ("serving_default", "images", "predict")
_IMAGE_RANK = 4
_CHANNELS = (1, 3)


@dataclass(frozen=True)
class Signature:
    """A signature that returns scores.

    Args:
        argument: Its only input.
        image_shape: Shape of its images, with None for an unknown dimension; None for a signature of tf.Examples.
        dtype: Dtype of the input.
        batch: The only batch size that it takes; None is any.
    """

    name: str
    argument: str
    dtype: tf.DType
    image_shape: Optional[tuple[Optional[int], Optional[int], int]]
    scores: Scores
    batch: Optional[int] = None


@dataclass(frozen=True)
class Chosen:
    """The signatures called with images and with tf.Examples; None if the model has no such signature.

    Args:
        listed: All signatures, for messages.
        features: What the signature of tf.Examples parses, by name.
    """

    found: FoundModel
    labels: Sequence[str]
    images: Optional[Signature]
    examples: Optional[Signature]
    listed: str = ""
    features: Mapping[str, Feature] = field(default_factory=dict)

    @property
    def image_shape(self) -> Optional[tuple[Optional[int], Optional[int], int]]:
        """Height, width and channels of the images that the model takes, also in tf.Examples; None if it takes none."""
        if self.images:
            return self.images.image_shape
        return self.found.image_shape if self.examples else None

    @property
    def batch_size(self) -> Optional[int]:
        """The only batch size that the model takes; None is any."""
        return next((each.batch for each in (self.images, self.examples) if each and each.batch), None)

    def labels_of(self, scores: Scores, values: np.ndarray) -> Sequence[str]:
        """Returns the names of the classes that have probabilities; none for numbers."""
        return [] if scores.is_number else self.labels or [str(label) for label in range(values.shape[1])]

    def refuse_examples(self) -> DeclarationError:
        """Returns the error for TFRecord files given to a model of images."""
        return DeclarationError(
            f"{one_line(self.found.folder)} takes no tf.Examples, which TFRecord files hold",
            expected=f"a signature with one input, string [batch], that parses them; there are {self.listed}",
            todo="name images; or a model that has one",
        )

    def lacking(self, table: RowFile) -> list[str]:
        """Returns the features that are no columns of a table, if all may be missing; otherwise refuses the table."""
        lacking = [name for name in self.features if name not in table.columns]
        if len(lacking) < len(self.features) and not any(self.features[name].needed for name in lacking):
            return lacking
        columns = f"its columns are {listing([*table.columns])}"
        if self.image_shape or not self.features:
            raise DataError(
                one_line(f"{table.name} has no column of images, and {self.found.folder} takes no other rows"),
                expected=f"a column image, path, file or filename; {columns}",
                todo="name the column so; or name a model that parses the features of tf.Examples",
            )
        other = len(table.columns) == 1 and any(each in next(iter(table.columns)) for each in ";\t")
        raise DataError(
            one_line(f"{table.name} lacks columns that {self.found.folder} parses: {listing(lacking)}"),
            expected="commas between columns" if other else columns,
            todo="add them; the first line of a CSV file names the columns as the model does",
        )

    def refuse_images(self) -> DeclarationError:
        """Returns the error for images given to a model that takes none."""
        return DeclarationError(
            f"{one_line(self.found.folder)} takes no images",
            expected="a signature with one input, uint8 or float [batch, height, width, 1 or 3], or of tf.Examples and "
            f"a run that recorded the shape of images; there are {self.listed}",
            todo="name the run that trained it, or another signature by --signature",
        )


def choose(found: FoundModel, named: str = "") -> Chosen:
    """Chooses signatures from a SavedModel's meta graph, without loading the model.

    Args:
        named: SIGNATURE or SIGNATURE:OUTPUT; empty chooses the first suitable ones.
    """
    graph = read_graph(found.folder)
    signatures = graph.signature_def
    names = [name for name in _FIRST if name in signatures]
    names += sorted(name for name in set(signatures) - {*names} if not name.startswith("__"))
    wanted, _, key = named.partition(":")
    if wanted and wanted not in names:
        raise DeclarationError(
            f"--signature {one_line(wanted)}: {one_line(found.folder)} has no such signature",
            expected=f"one of {', '.join(names) or 'those of a SavedModel, of which there are none'}",
            todo="correct it",
        )
    chosen = [wanted] if wanted else names
    images = next((name for name in chosen if _image_shape(signatures[name])), None)
    parsed = ((name, parsed_features(graph, name)) for name in chosen if _is_text(signatures[name]))
    examples, features = next((each for each in parsed if each[1] is not None), (None, None))
    labels = list(found.labels)
    if not labels and (name := images or examples):
        labels = read_labels(found.folder, name)
    listed = ", ".join(f"{name} ({_describe(signatures[name])})" for name in names) or "none"

    def make(name: Optional[str]) -> Optional[Signature]:
        if name is None:
            return None
        ((argument, info),) = signatures[name].inputs.items()
        scores = _scores(found.folder, name, key or found.scores, len(labels))
        batch = info.tensor_shape.dim[0].size if info.tensor_shape.dim else -1
        shape = _image_shape(signatures[name])
        return Signature(name, argument, tf.as_dtype(info.dtype), shape, scores, batch if batch > 0 else None)

    return Chosen(found, labels, make(images), make(examples), listed, features or {})


def check_pixels(chosen: Chosen, pixels: Optional[tuple[float, float]]) -> None:
    """Refuses a model of floats without a declared range of pixels, which may be 0 to 1, -1 to 1, or 0 to 255."""
    takes = chosen.images.dtype.name if chosen.images else "no images"
    if pixels is None and chosen.images and chosen.images.dtype != tf.uint8:
        raise DeclarationError(
            f"{one_line(chosen.found.folder)} takes pixels as {takes}, of a range that is not known",
            expected="--pixels LOW,HIGH, as in its training",
            todo="add, for example, --pixels 0,1",
        )
    if pixels is not None and not takes.startswith(("float", "bfloat")):
        raise DeclarationError(
            f"--pixels: {one_line(chosen.found.folder)} takes {takes}",
            expected="a model of floats",
            todo="leave it out",
        )


def read_graph(folder: str) -> meta_graph_pb2.MetaGraphDef:
    """Reads the graph that a SavedModel serves."""
    path = os.path.join(folder, FILE)
    try:
        graphs = read_graphs(folder)
    except (DecodeError, tf.errors.OpError) as error:
        raise PipelineError(
            f"{one_line(path)} cannot be read: {one_line(str(error))}",
            expected="a whole SavedModel",
            todo="copy it again",
        ) from error
    served = [graph for graph in graphs if _SERVE in graph.meta_info_def.tags]
    if not served:
        raise DeclarationError(
            f"{one_line(folder)} has no graph tagged {_SERVE}", expected="one for serving", todo="name another"
        )
    return served[0]


def _image_shape(signature: Any) -> Optional[tuple[Optional[int], Optional[int], int]]:
    """Returns the shape of the images that a signature takes; None if it takes none."""
    if len(signature.inputs) != 1:
        return None
    (info,) = signature.inputs.values()
    kind, shape = tf.as_dtype(info.dtype), info.tensor_shape
    if not (kind == tf.uint8 or kind.is_floating) or shape.unknown_rank or len(shape.dim) != _IMAGE_RANK:
        return None
    height, width, channels = (None if each.size < 0 else each.size for each in shape.dim[1:])
    return (height, width, channels) if channels in _CHANNELS else None


def _is_text(signature: Any) -> bool:
    if len(signature.inputs) != 1:
        return False
    (info,) = signature.inputs.values()
    return tf.as_dtype(info.dtype) == tf.string and (info.tensor_shape.unknown_rank or len(info.tensor_shape.dim) == 1)


def _describe(signature: Any) -> str:
    inputs = sorted(signature.inputs.items())
    return ", ".join(
        f"{name}: {tf.as_dtype(info.dtype).name} {[each.size for each in info.tensor_shape.dim]}"
        for name, info in inputs
    )


def _scores(folder: str, name: str, key: Optional[str], classes: int) -> Scores:
    outputs = read_outputs(folder, name)
    try:
        scores = choose_scores(outputs, key, classes) if classes else choose_of_any(outputs, key)
    except UserCodeError as refused:
        todo = f"name it: --signature {name}:OUTPUT"
        raise DeclarationError(refused.what, expected=refused.expected, todo=todo) from refused
    (output,) = (each for each in outputs if each.name == scores.key)
    if scores.of_two and not classes and not is_of_class(output):
        return replace(scores, from_logits=False, of_two=False, is_number=True)
    return scores


def load(folder: str) -> Any:
    """Loads a SavedModel."""
    try:
        return tf.saved_model.load(folder)
    except Exception as error:  # TensorFlow raises many types, for missing files or unknown operations
        raise PipelineError(
            f"{one_line(folder)} cannot be loaded: {first_line(error)}",
            expected="a whole SavedModel, of operations that this TensorFlow has",
            todo="copy it again; or export it anew",
        ) from error


class Model:
    """A loaded model.

    Args:
        pixels: The numbers that the pixel values 0 and 255 become, for a signature of floats.
        loaded: The SavedModel; None loads it.
    """

    def __init__(self, chosen: Chosen, pixels: Optional[tuple[float, float]] = None, loaded: Any = None) -> None:
        self.chosen = chosen
        self._pixels = pixels or (0.0, 255.0)
        # Its signatures do not keep its variables alive.
        self._loaded = loaded or load(chosen.found.folder)

    def predict_images(self, images: np.ndarray) -> np.ndarray:
        """Returns the scores that the model serves, float32, for images, uint8 [batch, height, width, channels]."""
        signature = self.chosen.images
        if signature is None:
            return self.predict_examples([_example(image) for image in images])
        values: Any = images
        if signature.dtype != tf.uint8:
            low, high = self._pixels
            values = images.astype(np.float32) * np.float32((high - low) / 255) + np.float32(low)
        return self._call(signature, tf.cast(tf.constant(values), signature.dtype))

    def predict_examples(self, serialized: Sequence[bytes]) -> np.ndarray:
        """Returns the scores for serialized tf.Examples."""
        assert self.chosen.examples
        return self._call(self.chosen.examples, tf.constant(serialized))

    def _call(self, signature: Signature, batch: tf.Tensor) -> np.ndarray:
        count = len(batch)
        if signature.batch and count < signature.batch:
            batch = tf.concat([batch, tf.repeat(batch[-1:], signature.batch - count, axis=0)], 0)
        try:
            outputs = self._loaded.signatures[signature.name](**{signature.argument: batch})
        except tf.errors.InvalidArgumentError:
            raise  # an example that the model does not take
        except tf.errors.OpError as error:
            raise UserCodeError(
                f"the model failed: {first_line(error)}", expected="scores", todo="try a smaller --batch-size"
            ) from error
        scores = outputs[signature.scores.key].numpy().astype(np.float32)
        if scores.shape[:1] != (len(batch),):
            # Treated as a wrong example: one may hold the bytes of two images.
            raise tf.errors.InvalidArgumentError(None, None, f"it returns {list(scores.shape)} for {len(batch)}")
        return scores[:count]


def _example(image: np.ndarray) -> bytes:
    """Returns a serialized tf.Example like those of TfdsExampleGen."""
    example = tf.train.Example()
    example.features.feature[IMAGE].bytes_list.value.append(image.tobytes())
    return example.SerializeToString()
