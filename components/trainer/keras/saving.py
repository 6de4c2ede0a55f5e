"""Checkpoints of a Keras training, and the SavedModel of one.

A checkpoint holds weights, the optimizer's slots, and the step. `tf.train.CheckpointManager` writes it, rather than
`BackupAndRestore`: one at each declared step, under the name that the supervisor looks for. Several are kept, so that a
damaged last one costs an interval and not the training. The input resumes at the checkpoint's step; neither of the two,
nor PreemptionCheckpointHandler, keeps the input's position.

Source: https://www.tensorflow.org/guide/checkpoint.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.trackable.resource import CapturableResource

from tfx_estimator.components.trainer.checkpoint import check_answers, refuse_carried, step_of
from tfx_estimator.components.trainer.declared_input import DeclaredInput, from_columns
from tfx_estimator.components.trainer.keras.model import ModelMaker
from tfx_estimator.components.trainer.protocol.task_spec import WORKER, TaskSpec
from tfx_estimator.components.trainer.settings import RESIZED, Settings
from tfx_estimator.data.encoded_images import decode_encoded
from tfx_estimator.data.features import COLUMNS, ENCODED, EXAMPLES, IMAGE, IMAGES
from tfx_estimator.data.preprocessing import decode_images, encode_images
from tfx_estimator.model_fn.user_models.warm_start import finalize
from tfx_estimator.pipeline.base.errors import TrainingError
from tfx_estimator.pipeline.base.text import first_line
from tfx_estimator.pipeline.user_data.reading import listed

_PREFIX = "model.ckpt"
# In TensorFlow's list of what a checkpoint lacks.
_VARIABLE = re.compile(r"<tf.Variable '([^':]+)")
# Parts of a compiled model that its outputs do not depend on.
_OPTIMIZERS = (tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer)
# Parts that an export must hold. An asset that is not tracked would be saved as its path.
_EXPORTED = (tf.Variable, CapturableResource, tf.saved_model.Asset)


class Saver:
    """Saves and restores a compiled model, and keeps the newest checkpoints.

    In a cluster all tasks save, and only the chief's checkpoints are kept.
    """

    def __init__(self, model: tf.keras.Model, folder: str, keep: int, task: TaskSpec) -> None:
        self._folder, self._model = folder, model
        # Object-based, so independent of the strategy.
        self._checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        own = os.path.join(folder, f"tmp_worker_{task.index}") if task.type == WORKER else folder
        self._manager = tf.train.CheckpointManager(
            self._checkpoint, own, keep if own == folder else 1, checkpoint_name=_PREFIX
        )

    def restore(self, goes_on: bool = False) -> int:
        """Restores the newest checkpoint of the chief, and returns its global step; 0 if there is none.

        Args:
            goes_on: That of step 0 is of an earlier day.
        """
        latest = tf.train.latest_checkpoint(self._folder)
        if latest is None:
            check_answers(self._folder)
        else:
            rate = getattr(self._model.optimizer, "learning_rate", None)
            declared = rate.numpy() if isinstance(rate, tf.Variable) else None
            try:
                self._checkpoint.restore(latest).assert_existing_objects_matched()
            except (AssertionError, ValueError) as error:
                if goes_on and not step_of(latest):
                    lacking = sorted({*_VARIABLE.findall(str(error))}, key=lambda name: (-name.count("/"), name))
                    why = f"its checkpoint has nothing of {listed(lacking, 3)}" if lacking else first_line(error)
                    raise refuse_carried(why) from error
                raise TrainingError(
                    f"checkpoint {latest} does not fit the model: {first_line(error)}",
                    expected="a checkpoint of the same network and optimizer",
                    todo=f"change trainer.model back, or remove {self._folder} to start at step 0",
                ) from error
            finalize(self._model)
            if goes_on and rate is not None and declared is not None and not step_of(latest):
                # The rate of that day may have been another.
                rate.assign(declared)
        return step_of(latest)

    def save(self, step: int) -> None:
        """Saves a checkpoint."""
        self._manager.save(checkpoint_number=step)


def restore_weights(model: tf.keras.Model, path: str) -> None:
    """Restores only the weights of a checkpoint, for evaluation and serving."""
    status = tf.train.Checkpoint(model=model).restore(path).expect_partial()
    try:
        status.assert_existing_objects_matched()
    except AssertionError:
        # Metrics may create their variables in the first evaluation: no checkpoint of the training holds those.
        known = {id(each) for each in status._checkpoint.object_by_proto_id.values()}
        known |= {id(each) for metric in model.metrics for each in metric.variables}
        if any(id(each) not in known for each in model.weights):
            raise
    finalize(model)


class ServedModel(tf.Module):
    """A model preceded by the Transform graph, with the same signatures as an Estimator's export.

    Args:
        settings: The image shape, the classes, the task, and whether encoded files are served.
    """

    def __init__(
        self,
        model: Any,
        declared: DeclaredInput,
        settings: Settings,
    ) -> None:
        super().__init__(name="served_model")
        layer = declared.transform_output.transform_features_layer()
        # Tracks the resources, not the model and the layer: Keras would trace all of them again.
        self.weights = list(model.weights)
        parts = itertools.chain(_parts(model), _parts(layer))
        self.resources = [each for each in parts if isinstance(each, _EXPORTED)]
        self._answers = functools.partial(model.answers, label_names=list(settings.label_names))
        self._transform = functools.partial(layer)
        self._image_shape, self._encoded = settings.image_shape, settings.encoded
        self._is_table, self._label = bool(settings.table), declared.label
        # Not as attributes, which a tf.Module would track, and wrap.
        self._columns: Callable[[], dict[str, tf.TensorSpec]] = functools.partial(
            dict, declared.columns if self._is_table else {}
        )
        self._from_columns = functools.partial(from_columns, spec=declared.served_spec)
        self._parse = functools.partial(tf.io.parse_example, features=declared.served_spec)
        self._shape = () if self._is_table else declared.served_spec[IMAGE].shape

    def from_examples(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        """Classifies serialized tf.Examples, string [batch]."""
        return self.from_images(decode_images(self._parse(examples)[IMAGE], self._image_shape))

    @tf.autograph.experimental.do_not_convert
    def from_rows(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        """Predicts of a table's rows, serialized tf.Examples, string [batch]."""
        return self._of_rows(self._parse(examples))

    @tf.autograph.experimental.do_not_convert
    def from_columns(self, columns: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Predicts of a table's columns, each [batch]."""
        return self._of_rows(self._from_columns(columns))

    def _of_rows(self, rows: dict[str, Any]) -> dict[str, tf.Tensor]:
        features = self._transform(rows)
        return self._answers({name: each for name, each in features.items() if name != self._label})

    def from_images(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        """Classifies images, uint8 [batch, height, width, channels]."""
        return self._answers(self._features(images))

    def from_encoded(self, encoded: tf.Tensor) -> dict[str, tf.Tensor]:
        """Classifies PNG and JPEG files, string [batch]."""
        return self.from_images(self._decoded(encoded))

    # Without AutoGraph, which takes seconds to convert Transform's code; the network may need it.
    @tf.autograph.experimental.do_not_convert
    def _features(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        # Both inputs are encoded, so that the preprocessing_fn gets the same bytes as in training.
        encoded = tf.reshape(encode_images(images), [-1, *self._shape])
        return self._transform({IMAGE: encoded})

    @tf.autograph.experimental.do_not_convert
    def _decoded(self, encoded: tf.Tensor) -> tf.Tensor:
        return decode_encoded(encoded, self._image_shape, self._encoded == RESIZED)

    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """Returns the served functions by name."""
        examples = tf.TensorSpec([None], tf.string, EXAMPLES)
        by_default = self.from_rows if self._is_table else self.from_examples
        traced = {
            tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: tf.function(by_default).get_concrete_function(examples)
        }
        if columns := self._columns() if self._is_table else {}:
            traced[COLUMNS] = tf.function(self.from_columns).get_concrete_function(columns)
        if not self._is_table:
            images = tf.TensorSpec([None, *self._image_shape], tf.uint8, IMAGES)
            traced[IMAGES] = tf.function(self.from_images).get_concrete_function(images)
        if self._encoded:
            files = tf.TensorSpec([None], tf.string, ENCODED)
            traced[ENCODED] = tf.function(self.from_encoded).get_concrete_function(files)
        # Variables of metrics that `call` updates, such as those of add_metric.
        kept = {id(each) for each in (*self.weights, *self.resources)}
        read = {id(each): each for function in traced.values() for each in function.graph.variables}
        self.resources += [each for key, each in read.items() if key not in kept]
        return traced


def _parts(model: tf.keras.layers.Layer) -> Iterator[Any]:
    """Yields the trackable parts of a model: its functions cannot be exported without the resources that they read.

    Keras does not list all of them as weights: vocabularies, and those of a SavedModel that a layer has loaded.
    """
    seen, left = {id(model): model}, [model]
    while left:
        each = left.pop()
        yield each
        # The inside of a metric matters only for evaluations.
        if not isinstance(each, (tf.Variable, CapturableResource, tf.keras.metrics.Metric, *_OPTIMIZERS)):
            children = tf.train.TrackableView.children(each).values()
            new = {id(child): child for child in children if id(child) not in seen}
            seen |= new
            left += new.values()


def export_model(
    maker: ModelMaker,
    checkpoint: str,
    declared: DeclaredInput,
    settings: Settings,
    folder: str,
) -> None:
    """Writes the SavedModel of a checkpoint."""
    model = maker.make()
    restore_weights(model, checkpoint)
    served = ServedModel(model, declared, settings)
    tf.saved_model.save(served, folder, signatures=served.signatures())
