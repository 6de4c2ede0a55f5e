"""Source of a written network.py, which receives verbatim copies of the classes and functions that it uses.

It needs only TensorFlow, and the public names that Keras 2 and Keras 3 share.
"""

from __future__ import annotations

import os

import numpy as np
import tensorflow as tf

HERE = os.path.dirname(os.path.abspath(__file__))
# The id of a missing value; -1 is that of a word outside of the vocabulary.
ABSENT = -2
# Missing values in categorical inputs.
NO_WORD, NO_NUMBER = "\0", tf.int64.min


def loss(labels, logits, weights=None):
    """Placeholder: `writing` writes it."""
    raise NotImplementedError


def optimizers():
    """Placeholder: `writing` writes it."""
    raise NotImplementedError


def is_absent(values):
    """True where an example has no value."""
    return tf.equal(values, NO_WORD if values.dtype == tf.string else NO_NUMBER)


def sparse(values, present):
    """Returns the present values as a SparseTensor."""
    places = tf.where(present)
    return tf.SparseTensor(places, tf.gather_nd(values, places), tf.shape(values, out_type=tf.int64))


@tf.keras.utils.register_keras_serializable("network")
class Computed(tf.keras.layers.Layer):
    """The result of a function of this module."""

    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        registered = tf.keras.utils.get_registered_object
        self.function = registered(function) if isinstance(function, str) else function

    def call(self, values):
        return self.function(*values) if isinstance(values, (list, tuple)) else self.function(values)

    def get_config(self):
        return {**super().get_config(), "function": tf.keras.utils.get_registered_name(self.function)}


@tf.keras.utils.register_keras_serializable("network")
class Normalized(Computed):
    """A number transformed by its `normalizer_fn`.

    Args:
        width: Values of an example.
    """

    def __init__(self, function, width, **kwargs):
        super().__init__(function, **kwargs)
        self.width = width

    def call(self, values):
        return tf.reshape(tf.cast(super().call(values), tf.float32), [-1, self.width])

    def get_config(self):
        return {**super().get_config(), "width": self.width}


@tf.keras.utils.register_keras_serializable("network")
class HashBucket(tf.keras.layers.Hashing):
    """Ids of `categorical_column_with_hash_bucket`."""

    def call(self, values):
        return tf.where(is_absent(values), tf.constant(ABSENT, tf.int64), super().call(values))


@tf.keras.utils.register_keras_serializable("network")
class WordIds(tf.keras.layers.Layer):
    """Ids of `categorical_column_with_vocabulary_…`, from those of a lookup layer, whose first is the missing value.

    Args:
        words: Size of the vocabulary; its ids begin at 0.
        buckets: Number of ids after those, for unknown words; with 0 these have the default.
    """

    def __init__(self, words, buckets=0, default=-1, **kwargs):
        super().__init__(**kwargs)
        self.words, self.buckets, self.default = words, buckets, default

    def call(self, places):
        first = 1 + max(self.buckets, 1)
        unknown = self.words + places - 1 if self.buckets else tf.constant(self.default, tf.int64)
        ids = tf.where(places < first, unknown, places - first)
        return tf.where(tf.equal(places, 0), tf.constant(ABSENT, tf.int64), ids)

    def get_config(self):
        return {**super().get_config(), "words": self.words, "buckets": self.buckets, "default": self.default}


@tf.keras.utils.register_keras_serializable("network")
class Identity(tf.keras.layers.Layer):
    """Ids of `categorical_column_with_identity`: the values; out of range, the default if there is one."""

    def __init__(self, buckets, default=None, **kwargs):
        super().__init__(**kwargs)
        self.buckets, self.default = buckets, default

    def call(self, values):
        ids = values
        if self.default is not None:
            outside = (values < 0) | (values >= self.buckets)
            ids = tf.where(outside, tf.constant(self.default, tf.int64), values)
        return tf.where(is_absent(values), tf.constant(ABSENT, tf.int64), ids)

    def get_config(self):
        return {**super().get_config(), "buckets": self.buckets, "default": self.default}


@tf.keras.utils.register_keras_serializable("network")
class Apart(tf.keras.layers.Layer):
    """Ids of a `bucketized_column` of several numbers: each number's ids follow those of the one before."""

    def __init__(self, buckets, **kwargs):
        super().__init__(**kwargs)
        self.buckets = buckets

    def call(self, ids):
        return tf.cast(ids, tf.int64) + self.buckets * tf.range(tf.shape(ids, out_type=tf.int64)[1])

    def get_config(self):
        return {**super().get_config(), "buckets": self.buckets}


@tf.keras.utils.register_keras_serializable("network")
class Crossed(tf.keras.layers.Layer):
    """Ids of a `crossed_column`. Keras's HashedCrossing takes exactly one value of each example.

    Args:
        kinds: For each input: `ids` of another column, `values` of a feature, or `present` ones of a sparse feature.
    """

    def __init__(self, buckets, kinds, hash_key=None, **kwargs):
        super().__init__(**kwargs)
        self.buckets, self.kinds, self.hash_key = buckets, list(kinds), hash_key

    def call(self, inputs):
        crossed = []
        for each, kind in zip(inputs, self.kinds):
            if kind == "ids":
                each = sparse(each, tf.not_equal(each, ABSENT))
            elif kind == "present":
                each = sparse(each, tf.logical_not(is_absent(each)))
            else:
                # The value that `dense` has replaced.
                each = tf.where(is_absent(each), tf.constant("" if each.dtype == tf.string else -1, each.dtype), each)
            crossed.append(each)
        ids = tf.sparse.cross_hashed(crossed, self.buckets, self.hash_key)
        return tf.sparse.to_dense(ids, tf.constant(ABSENT, tf.int64))

    def get_config(self):
        return {**super().get_config(), "buckets": self.buckets, "kinds": self.kinds, "hash_key": self.hash_key}


@tf.keras.utils.register_keras_serializable("network")
class MultiHot(tf.keras.layers.Layer):
    """Dense values of an `indicator_column`: the count of each id in an example, or the sum of its weights."""

    def __init__(self, ids, **kwargs):
        super().__init__(**kwargs)
        self.ids = ids

    def call(self, inputs):
        ids, weights = inputs if isinstance(inputs, (list, tuple)) else (inputs, None)
        hot = tf.one_hot(ids, self.ids)
        return tf.reduce_sum(hot if weights is None else hot * weights[:, :, tf.newaxis], axis=1)

    def get_config(self):
        return {**super().get_config(), "ids": self.ids}


@tf.keras.utils.register_keras_serializable("network")
class Bag(tf.keras.layers.Layer):
    """The combined rows of an example's ids: an `embedding_column`, or the weights of a linear model.

    Args:
        ids: Number of rows.
        units: Values of each row.
        combiner: `mean`, `sqrtn` or `sum`.
        max_norm: Longer rows are scaled to this norm.
    """

    def __init__(self, ids, units, combiner="sum", max_norm=None, initializer="zeros", **kwargs):
        super().__init__(**kwargs)
        self.ids, self.units, self.combiner, self.max_norm = ids, units, combiner, max_norm
        self.initializer = tf.keras.initializers.get(initializer)

    def build(self, shape):
        self.rows = self.add_weight(name="rows", shape=(self.ids, self.units), initializer=self.initializer)

    def call(self, inputs):
        ids, weights = inputs if isinstance(inputs, (list, tuple)) else (inputs, None)
        present = ids >= 0
        combined = tf.nn.safe_embedding_lookup_sparse(
            # Keras 3 wraps TensorFlow's variable.
            self.rows if isinstance(self.rows, tf.Variable) else self.rows.value,
            sparse(tf.cast(ids, tf.int64), present),
            None if weights is None else sparse(weights, present),
            combiner=self.combiner,
            max_norm=self.max_norm,
        )
        return tf.reshape(combined, [-1, self.units])

    def get_config(self):
        config = {"ids": self.ids, "units": self.units, "combiner": self.combiner, "max_norm": self.max_norm}
        return {**super().get_config(), **config, "initializer": tf.keras.initializers.serialize(self.initializer)}


@tf.keras.utils.register_keras_serializable("network")
class Total(tf.keras.layers.Layer):
    """The sum of a linear model's columns, and its bias."""

    def build(self, shapes):
        self.bias = self.add_weight(name="bias", shape=(shapes[0][-1],), initializer="zeros")

    def call(self, inputs):
        return tf.add_n(inputs) + self.bias


def dense_numbers(value, dtype, width):
    """Returns a feature as [batch, values]."""
    value = tf.cast(value, dtype)
    value = tf.sparse.to_dense(value) if isinstance(value, tf.SparseTensor) else value
    return tf.reshape(value, [tf.shape(value)[0], -1 if width is None else width])


def dense(value, dtype, width):
    """Returns a feature as [batch, values]; a missing category is NO_WORD or NO_NUMBER."""
    value = value if dtype == "string" else tf.cast(value, dtype)
    if dtype == "float32":
        value = tf.sparse.to_dense(value) if isinstance(value, tf.SparseTensor) else value
    else:
        none, empty = (NO_WORD, "") if dtype == "string" else (NO_NUMBER, -1)
        none = tf.constant(none, dtype)
        # tf.feature_column takes "" and -1 for missing values in a dense tensor, but not in a SparseTensor.
        is_sparse = isinstance(value, tf.SparseTensor)
        value = tf.sparse.to_dense(value, none) if is_sparse else tf.where(tf.equal(value, empty), none, value)
    return tf.reshape(value, [tf.shape(value)[0], -1 if width is None else width])


def words_of(file, kind=str):
    """Returns the vocabulary of a file next to this one."""
    with tf.io.gfile.GFile(os.path.join(HERE, file)) as lines:
        return [kind(line.rstrip("\n")) for line in lines]


@tf.keras.utils.register_keras_serializable("network")
class EstimatorModel(tf.keras.Model):
    """Trains like the Estimator: by `loss` and `optimizers` of this module; compile() takes no others."""

    def compile(self, **kwargs):
        # A later compile() keeps the optimizers, to which `restore` has assigned values.
        if getattr(self, "by_part", None) is None:
            self.by_part = optimizers()
            self.mean_loss = tf.keras.metrics.Mean(name="loss")
        # Keras takes one optimizer. XLA, Keras 3's default, does not support sparse operations.
        first = next(iter(self.by_part.values()))
        super().compile(optimizer=first, loss=None, **{"jit_compile": False, **kwargs})

    def trained(self):
        """Returns each optimizer with the variables that it trains; the linear model's layers are named linear_…."""
        if len(self.by_part) == 1:
            return [(optimizer, self.trainable_variables) for optimizer in self.by_part.values()]

        def variables(is_linear):
            layers = [each for each in self.layers if each.name.startswith("linear_") == is_linear]
            return [variable for layer in layers for variable in layer.trainable_variables]

        return [(optimizer, variables(name == "linear")) for name, optimizer in self.by_part.items()]

    def train_step(self, batch):
        features, labels, weights = (*batch, None)[:3]
        with tf.GradientTape() as tape:
            logits = self(features, training=True)
            value = loss(labels, logits, weights)
            # Under a strategy each replica's loss is divided by the number of replicas.
            part = value / tf.distribute.get_strategy().num_replicas_in_sync
        trained = self.trained()
        gradients = tape.gradient(part, [variables for _, variables in trained])
        for (optimizer, variables), found in zip(trained, gradients):
            optimizer.apply_gradients(zip(found, variables))
        self.mean_loss.update_state(value)
        return self.compute_metrics(features, labels, logits, weights)

    def test_step(self, batch):
        features, labels, weights = (*batch, None)[:3]
        logits = self(features, training=False)
        value = loss(labels, logits, weights)
        self.mean_loss.update_state(value)
        return self.compute_metrics(features, labels, logits, weights)


class Momentum(tf.keras.optimizers.legacy.SGD):
    """Momentum whose slot is the sum of gradients, as in `tf.compat.v1.train`; Keras's sums gradients times rates."""

    def _options(self, var, apply_state):
        key = var.device, var.dtype.base_dtype
        found = (apply_state or {}).get(key) or self._fallback_apply_state(*key)
        slot = self.get_slot(var, "momentum")
        options = {"lr": found["lr_t"], "momentum": found["momentum"], "use_nesterov": self.nesterov}
        return {"var": var.handle, "accum": slot.handle, **options}

    def _resource_apply_dense(self, grad, var, apply_state=None):
        return tf.raw_ops.ResourceApplyMomentum(grad=grad, **self._options(var, apply_state))

    def _resource_apply_sparse(self, grad, var, indices, apply_state=None):
        return tf.raw_ops.ResourceSparseApplyMomentum(grad=grad, indices=indices, **self._options(var, apply_state))


class ProximalAdagrad(tf.keras.optimizers.legacy.Adagrad):
    """Adagrad that shrinks the weights, as in `tf.compat.v1.train`."""

    def __init__(
        self,
        learning_rate,
        initial_accumulator_value=0.1,
        l1_regularization_strength=0.0,
        l2_regularization_strength=0.0,
    ):
        super().__init__(learning_rate, initial_accumulator_value)
        self.shrinks = {"l1": l1_regularization_strength, "l2": l2_regularization_strength}

    def _options(self, var, apply_state):
        key = var.device, var.dtype.base_dtype
        found = (apply_state or {}).get(key) or self._fallback_apply_state(*key)
        slot = self.get_slot(var, "accumulator")
        return {"var": var.handle, "accum": slot.handle, "lr": found["lr_t"], **self.shrinks}

    def _resource_apply_dense(self, grad, var, apply_state=None):
        return tf.raw_ops.ResourceApplyProximalAdagrad(grad=grad, **self._options(var, apply_state))

    def _resource_apply_sparse(self, grad, var, indices, apply_state=None):
        options = self._options(var, apply_state)
        return tf.raw_ops.ResourceSparseApplyProximalAdagrad(grad=grad, indices=indices, **options)


def weights_of(model):
    """Returns the variables of a model's layers, by LAYER/VARIABLE."""
    pairs = [(layer, variable) for layer in model.layers for variable in layer.weights]
    return {f"{layer.name}/{each.name.rpartition('/')[2].partition(':')[0]}": each for layer, each in pairs}


def places(model):
    """Returns a compiled model's variables: LAYER/VARIABLE, and LAYER/VARIABLE/SLOT of an optimizer."""
    found = weights_of(model)
    names = {id(variable): name for name, variable in found.items()}
    for optimizer, variables in model.trained():
        optimizer._create_all_weights(variables)  # as its first step would
        for variable in variables:
            for slot in optimizer.get_slot_names():
                found[f"{names[id(variable)]}/{slot}"] = optimizer.get_slot(variable, slot)
    return found


def restore(model, file="weights.npz"):
    """Restores the Estimator's weights, slots and step, to resume training; compiles the model if necessary."""
    if getattr(model, "by_part", None) is None:
        model.compile()
    found = places(model)
    # One at a time: all together may not fit in memory.
    with tf.io.gfile.GFile(os.path.join(HERE, file), "rb") as stored, np.load(stored) as values:
        if wrong := {*found, "global_step"} ^ set(values):
            raise ValueError(f"{file} is another model's: {sorted(wrong)}")
        for place, variable in found.items():
            variable.assign(values[place])
        for optimizer, _ in model.trained():
            optimizer.iterations.assign(values["global_step"])
