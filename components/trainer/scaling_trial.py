"""One step of anyone's training under two strategies, from the same weights, on the same batch."""

from __future__ import annotations

import copy
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf
from tensorflow.python.util import nest

from components.trainer import foreign_input
from components.trainer.distribute import SEED, rebuild
from pipeline.errors import TfxEstimatorError, UserCodeError

# What trainer_fn returns.
Spec = dict[str, Any]
# What `session.run` returns for an element of a data set, flat; its structure and types are the data set's.
Batch = list[Any]
# Part of the model, kind of variable -> norm of its change under many replicas / norm on one device.
Ratios = dict[tuple[str, str], float]

# Steps: where the first one changes nothing, as in a warm-up from 0, later ones may.
_STEPS = (1, 5)
# A change this small beside the largest of its kind is noise: the bias before a batch normalisation.
_NOISE = 1e-5
WEIGHTS = "weights"
_OBJECT = "/.ATTRIBUTES/VARIABLE_VALUE"


def read_batches(spec: Spec, count: int) -> tuple[Any, list[Batch]]:
    """Reads the first batches of a training, as its only input pipeline.

    Args:
        spec: What trainer_fn returned.
        count: How many, at most.

    Returns:
        The data set's `element_spec`, and the batches.

    Raises:
        UserCodeError: There is none, or what the input_fn returns is no data set of batches.
    """
    estimator: tf.estimator.Estimator = spec["estimator"]
    with tf.Graph().as_default():
        seed = estimator.config.tf_random_seed
        tf.compat.v1.set_random_seed(SEED if seed is None else seed)
        mode = tf.estimator.ModeKeys.TRAIN
        dataset = foreign_input.call(spec["train_spec"].input_fn, mode, estimator.params, estimator.config)
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        leaves = [leaf for leaf in nest.flatten(iterator.get_next()) if leaf is not None]
        batches: list[Batch] = []
        with tf.compat.v1.Session(config=estimator.config.session_config) as session:
            initializers = (tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer())
            session.run((*initializers, tf.compat.v1.tables_initializer()))
            session.run(iterator.initializer)
            while len(batches) < count:
                try:
                    batches.append(session.run(leaves))
                except tf.errors.OutOfRangeError:
                    break
    if not batches:
        raise UserCodeError(
            "TrainSpec.input_fn makes no batch",
            expected="a data set with examples",
            todo="see that its files are there and hold what it looks for",
        )
    return dataset.element_spec, batches


class Trial:
    """Trains a step twice, and compares what changed.

    Args:
        make_spec: Calls the user's trainer_fn: once for each training, since an optimizer that is built outside of the
            model_fn belongs to one graph.
        many: A strategy of several replicas.
        one: One of the same kind, of one replica: its variables bear the same names.
        folder: For checkpoints; removed by the caller.
    """

    def __init__(
        self,
        make_spec: Callable[[], Spec],
        many: tf.distribute.Strategy,
        one: tf.distribute.Strategy,
        folder: str,
    ) -> None:
        self._make_spec = make_spec
        self._many = many
        self._one = one
        self._folder = folder

    def compare(self, element_spec: Any, batch: Batch, seed: int = 0) -> Ratios:
        """Trains on one batch.

        Args:
            element_spec: Of the data set that the batch is from.
            batch: Flat.
            seed: Added to the user's own.

        Returns:
            How much more each part of the model changed under several replicas, with each of its optimizer's slots;
            empty where nothing changed.

        Raises:
            UserCodeError: Training works on one device alone.
        """
        for steps in _STEPS:
            many, one = (os.path.join(self._folder, f"{name}-{seed}-{steps}") for name in ("many", "one"))
            options = {"element_spec": element_spec, "batch": batch, "steps": steps, "seed": seed}
            try:
                self._train(self._many, many, **options)
            except TfxEstimatorError:
                raise
            except Exception as error:
                # Where this fails as well, it is not for the strategy.
                self._train(self._one, one, **options)
                raise UserCodeError(
                    f"the Estimator of trainer_fn trains on one device, but not under "
                    f"{type(self._many).__name__}: {_said(error)}",
                    expected="an Estimator that trains under trainer.distribution.train.strategy",
                    todo="make the optimizer inside the model_fn, from tf.compat.v1.train; or choose another strategy",
                ) from error
            names = self._train(self._one, one, start=many, **options)
            if ratios := _ratios(_changes(one, steps), _changes(many, steps), names):
                return ratios
        return {}

    def _train(
        self,
        strategy: tf.distribute.Strategy,
        folder: str,
        element_spec: Any,
        batch: Batch,
        steps: int,
        seed: int,
        start: Optional[str] = None,
    ) -> list[str]:
        """Trains, from the initial weights of another folder where one is named; returns the trained variables."""
        if start is not None:
            tf.io.gfile.makedirs(folder)
            for path in tf.io.gfile.glob(os.path.join(start, "model.ckpt-0.*")):
                tf.io.gfile.copy(path, os.path.join(folder, os.path.basename(path)))
            tf.compat.v1.train.update_checkpoint_state(folder, os.path.join(folder, "model.ckpt-0"))
        spec = self._make_spec()
        replicas = self._many.num_replicas_in_sync

        def input_fn(input_context: Any = None) -> tf.data.Dataset:
            dataset = _repeat(element_spec, batch, foreign_input.size_of(batch[0]) // replicas * replicas)
            return foreign_input.own_parts(dataset, input_context)

        estimator = rebuild(
            spec["estimator"],
            model_dir=folder,
            tf_random_seed=(spec["estimator"].config.tf_random_seed or 0) + seed,
            train_distribute=strategy,
            save_checkpoints_steps=steps,
            keep_checkpoint_max=2,
        )
        names = _Names()
        estimator.train(input_fn, max_steps=steps, hooks=[names])
        return names.found


class _Names(tf.estimator.SessionRunHook):
    """Takes note of the variables that are trained."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def begin(self) -> None:
        names = (variable.op.name for variable in tf.compat.v1.trainable_variables())
        # A partitioned variable is saved as a whole.
        self.found = [name.split("/part_")[0] for name in names]


def _repeat(element_spec: Any, batch: Batch, size: int) -> tf.data.Dataset:
    """A data set of one batch, over and over, outside of the graph: it may be too large for one."""
    specs = nest.flatten(element_spec)
    kinds = (tf.TensorSpec, tf.SparseTensorSpec, tf.RaggedTensorSpec)
    signature = tuple(spec for spec in specs if isinstance(spec, kinds))

    def pack(*leaves: Any) -> Any:
        rest = iter(leaves)
        rows = [foreign_input.take_rows(next(rest), 0, size) if isinstance(spec, kinds) else None for spec in specs]
        return nest.pack_sequence_as(element_spec, rows)

    def again() -> Iterator[tuple[Any, ...]]:
        while True:
            # Copies, as TensorFlow takes over the arrays' memory, and may write to it.
            yield tuple(copy.deepcopy(value) for value in batch)

    return tf.data.Dataset.from_generator(again, output_signature=signature).map(pack)


def _changes(folder: str, steps: int) -> dict[str, np.ndarray]:
    """What training changed, by the variables' names in the checkpoint."""
    before, after = (tf.train.load_checkpoint(os.path.join(folder, f"model.ckpt-{step}")) for step in (0, steps))
    floats = [name for name, kind in after.get_variable_to_dtype_map().items() if kind.is_floating]
    return {name: after.get_tensor(name).astype(np.float64) - before.get_tensor(name) for name in floats}


def _ratios(one: dict[str, np.ndarray], many: dict[str, np.ndarray], trained: Sequence[str]) -> Ratios:
    """Compares the changes of trained variables and of what their names are part of: the optimizer's slots."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in one:
        place = _place(name, trained)
        if place is not None and name in many:
            groups[place].append(name)
    norms = {key: _norms([(one[name], many[name]) for name in names]) for key, names in groups.items()}
    largest: dict[str, float] = defaultdict(float)
    for (_, kind), pair in norms.items():
        largest[kind] = max(largest[kind], *pair)
    return {
        key: pair[1] / pair[0] if pair[0] else float("inf")
        for key, pair in norms.items()
        if max(pair) > _NOISE * largest[key[1]]
    }


def _place(name: str, trained: Sequence[str]) -> Optional[tuple[str, str]]:
    """The part of the model that a checkpoint's variable belongs to, and its kind; None where it is not trained."""
    if name.endswith(_OBJECT):
        # Of Keras: an Estimator made by model_to_estimator.
        owner, _, slot = name.removesuffix(_OBJECT).partition("/.OPTIMIZER_SLOT/")
        return owner.split("/")[0], slot.rsplit("/", 1)[-1] or WEIGHTS
    owner = max((each for each in trained if f"/{each}/" in f"/{name}/"), key=len, default="")
    if not owner:
        return None
    return owner.split("/")[0], WEIGHTS if name == owner else name.rsplit("/", 1)[-1]


def _norms(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """Norms of the changes on one device and under many replicas, both in proportion to the gradients."""
    # A slot that adds up squares, such as Adam's v, only grows; the root makes it as quiet as the others.
    squares = all((one >= 0).all() and (many >= 0).all() for one, many in pairs)
    sums = (sum(float(np.sum(each if squares else each**2)) for each in side) for side in zip(*pairs))
    one, many = (total**0.5 for total in sums)
    return one, many


def _said(error: Exception) -> str:
    """The line of TensorFlow's message that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    name = type(error).__name__
    if "in user code" in str(error):
        return next((line for line in lines if line.startswith(f"{name}:")), name)
    skipped = ('File "', "Detected at", "Graph execution error", "Node:", "[[", "Original stack")
    told = [line for line in lines if not line.startswith(skipped)]
    return f"{name}: {told[0] if told else ''}"
