"""Source that is copied verbatim into a written network.py. It needs only TensorFlow, with Keras 2 or 3."""

from __future__ import annotations

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

GRAPH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "graph")
NAME = "network"
PLACES: dict[str, dict[str, str]] = {}
UNCUT, SUMMED, SCALABLE, PER_REPLICA = "", False, True, frozenset[str]()
FACTOR = "learning_rate_factor"


def components(value, name):
    """Yields the dense tensors of nested features or labels, with their names in the graph's signatures."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield from components(value[key], f"{name}_{key}")
    elif isinstance(value, (tf.SparseTensor, tf.compat.v1.SparseTensorValue)):
        for part in ("indices", "values", "dense_shape"):
            yield from components(getattr(value, part), f"{name}_{part}")
    elif isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            yield from components(each, f"{name}_{index}")
    elif isinstance(value, (tf.RaggedTensor, tf.compat.v1.ragged.RaggedTensorValue)):
        yield from components(value.flat_values, f"{name}_flat_values")
        yield from components(value.nested_row_splits, f"{name}_row_splits")
    elif value is not None:
        yield re.sub(r"\W", "_", name), value


def size(value):
    """Returns the number of examples in features."""
    first = tf.nest.flatten(value)[0]
    return (
        first.dense_shape[0]
        if isinstance(first, tf.SparseTensor)
        else tf.cast(first.nrows() if isinstance(first, tf.RaggedTensor) else tf.shape(first)[0], tf.int64)
    )


@tf.keras.utils.register_keras_serializable(NAME)
class Training(tf.keras.Model):
    """The Estimator's training. `get_weights`, `save` and Keras's callbacks have all that its checkpoint has.

    Under a tf.distribute strategy each replica has a copy of the graph; one evaluates and predicts.
    """

    is_alone = False

    def __init__(self, **options):
        super().__init__(**options)
        self.supports_jit = False
        strategy = tf.distribute.get_strategy()
        self.replicas = replicas = strategy.num_replicas_in_sync
        if replicas > 1 and UNCUT:
            raise ValueError(f"this training has one replica, and the strategy {replicas}: {UNCUT}")
        self.one_step = self.replica_step if replicas > 1 else self.single_step
        self.copies = []
        for device in strategy.extended.worker_devices if replicas > 1 else [None]:
            with tf.device(device):
                self.copies.append(tf.saved_model.load(GRAPH, tags=["train", "replica"] if replicas > 1 else ["train"]))
        self.of_mode = {}
        self.mean_loss = tf.keras.metrics.Mean(name="loss")
        self.built = True
        self.compile()

    def compile(self, steps_per_execution=1, run_eagerly=False):
        """Sets what Keras may choose. `optimizer.learning_rate` is a factor of the Estimator's own learning rate."""
        factor = tf.keras.optimizers.SGD(1.0)
        super().compile(factor, steps_per_execution=steps_per_execution, run_eagerly=run_eagerly)
        self.compiled_with = {"steps_per_execution": steps_per_execution, "run_eagerly": run_eagerly}

    def _validate_compile(self, *args, **kwargs):
        """Overrides Keras 2's, which refuses variables of one replica each."""

    def _maybe_symbolic_build(self, *args, **kwargs):
        """Overrides Keras 3's, which cannot add up sparse features of replicas; nothing is left to build."""

    def get_compile_config(self):
        return self.compiled_with

    def compile_from_config(self, config):
        self.compile(**config)

    def get_config(self):
        return {"name": self.name}

    @property
    def kept_step(self):
        """The step at which the training was kept."""
        return int(tf.train.load_variable(os.path.join(GRAPH, "variables", "variables"), "global_step"))

    @property
    def takes(self):
        """What a training step takes: the components of features and labels, by name."""
        signatures = self.copies[0].signatures
        return signatures["step" if "step" in signatures else "gradients"].structured_input_signature[1]

    @property
    def metrics(self):
        return [self.mean_loss]

    @property
    def variables(self):
        return saved(self.copies[0])

    weights = variables

    @property
    def trainable_variables(self):
        return [each for each in self.variables if each.trainable]

    trainable_weights = trainable_variables

    @property
    def non_trainable_variables(self):
        return [each for each in self.variables if not each.trainable]

    non_trainable_weights = non_trainable_variables

    def get_weights(self):
        return [each.numpy() for each in self.variables]

    def set_weights(self, weights):
        for copies, value in zip(zip(*map(saved, self.copies)), weights, strict=True):
            for each in copies:
                each.assign(value)

    def save_own_variables(self, store):
        for index, value in enumerate(self.get_weights()):
            store[str(index)] = value

    def load_own_variables(self, store):
        self.set_weights([store[str(index)] for index in range(len(store.keys()))])

    def save(self, filepath, *args, **options):
        super().save(whole(filepath), *args, **options)

    def save_weights(self, filepath, *args, **options):
        return super().save_weights(whole(filepath), *args, **options)

    def load_weights(self, filepath, *args, **options):
        return super().load_weights(whole(filepath), *args, **options)

    def train_step(self, data):
        features, labels = unpack(data)
        factor = tf.convert_to_tensor(self.optimizer.learning_rate)
        if not SCALABLE:
            tf.debugging.assert_equal(factor, 1.0, "the model_fn's learning rate cannot be multiplied by a factor")
        self.mean_loss.update_state(self.one_step(features, labels, factor))
        return {"loss": self.mean_loss.result()}

    def single_step(self, features, labels, factor):
        set_factor(self.copies[0], factor)
        return call(self.copies[0].signatures["step"], features, labels)["loss"]

    def replica_step(self, features, labels, factor):
        """Trains all copies by the gradient of the whole batch, so that they stay equal."""
        replica = tf.distribute.get_replica_context()
        copy = self.copies[int(tf.get_static_value(replica.replica_id_in_sync_group)) % len(self.copies)]
        set_factor(copy, factor)
        found = dict(call(copy.signatures["gradients"], features, labels))
        averages = {name_of(each): each for each in saved(copy) if name_of(each) in PER_REPLICA}
        examples = size(features)
        # The last batch may be divided unevenly, and leave a replica without an example.
        mean = examples / replica.all_reduce("SUM", examples)

        def part(value, share):
            return tf.where(examples > 0, value * tf.cast(share, value.dtype), tf.zeros_like(value))

        # A call may change variables until its last output is there: the loss waits for that.
        with tf.control_dependencies([tf.identity(found["loss"])]):
            indices = {name: tf.identity(found.pop(name)) for name in list(found) if name.endswith("/indices")}
            parts = {name: part(each, 1.0 if SUMMED else mean) for name, each in found.items()}
            sparse = {name: parts.pop(name) for name in list(parts) if name.endswith("/values")} | indices
            parts |= {name: part(each.read_value(), mean) for name, each in averages.items()}
        whole = replica.all_reduce("SUM", parts)
        for name, each in averages.items():
            each.assign(whole.pop(name))
        whole |= {name: replica.all_gather(each, axis=0) for name, each in sparse.items()}
        loss = whole.pop("loss")
        # Only what an output needs is run.
        return loss + copy.signatures["apply"](**whole)["zero"]

    def test_step(self, data):
        return call(self.of_mode["eval"].signatures["update"], *unpack(data))

    def evaluate(self, *data, return_dict=False, **options):
        """Returns the Estimator's metrics."""
        if self.replicas > 1:
            options.pop("_use_cached_eval_dataset", None)  # whose batches are divided
        return self.measure(super().evaluate, data, options, return_dict)

    def test_on_batch(self, *data, return_dict=False, **options):
        """Returns the Estimator's metrics for a batch."""
        return self.measure(super().test_on_batch, data, options, return_dict)

    def measure(self, function, data, options, return_dict):
        graph, _ = self.run("eval", function, *data, return_dict=True, **options)
        values = graph.signatures["result"]()
        found = {name: values[name].numpy() for name in sorted(values, key=lambda name: (name != "loss", name))}
        return found if return_dict else list(found.values())

    def predict_step(self, data):
        found = call(self.of_mode["serve"].signatures["predict"], unpack(data)[0])
        return found.get("", found)

    def predict(self, *data, **options):
        """Returns the predictions of the model_fn."""
        return self.run("serve", super().predict, *data, **options)[1]

    def predict_on_batch(self, *data, **options):
        """Returns the predictions of the model_fn for a batch."""
        return self.run("serve", super().predict_on_batch, *data, **options)[1]

    def call(self, inputs):
        """Returns the predictions of the model_fn for a batch."""
        self.current("serve")
        return self.predict_step((inputs,))

    @property
    def distribute_strategy(self):
        return tf.distribute.get_strategy() if self.is_alone else super().distribute_strategy

    def run(self, mode, function, *data, **options):
        """Calls a method of Keras with the current graph of a mode, in one replica; returns the graph and its result.

        A part of a batch has other metrics than the whole, and maybe no example. A new thread has no strategy.
        """

        def run():
            graph = self.current(mode)
            if mode == "eval":
                graph.signatures["reset"]()
            return graph, function(*data, **options)

        if self.replicas == 1 or self.is_alone:
            return run()
        self.is_alone = True
        try:
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(run).result()
        finally:
            self.is_alone = False

    def current(self, mode):
        """Returns the graph of evaluation or serving, with the values that the training's checkpoint would give it."""
        if mode not in PLACES:
            raise ValueError(f"the model_fn fails in this mode, {mode}, which was left out when its training was kept")
        if mode not in self.of_mode:
            with tf.init_scope():
                self.of_mode[mode] = tf.saved_model.load(GRAPH, tags=[mode])
        values = {name_of(each): each for each in self.variables}
        for each in self.of_mode[mode].variables:
            place = PLACES[mode].get(name_of(each), name_of(each))
            if place in values:
                each.assign(values[place])
        return self.of_mode[mode]

    def export_saved_model(self, folder):
        """Writes what the Estimator's own export_saved_model would: the same signatures, with the values of now."""
        graph = self.current("export")
        with open(os.path.join(GRAPH, "saved_model.pb"), "rb") as file:
            saved = SavedModel.FromString(file.read())
        (meta,) = (each for each in saved.meta_graphs if "export" in each.meta_info_def.tags)
        meta.meta_info_def.tags[:] = ["serve"]
        shutil.copytree(GRAPH, folder, ignore=shutil.ignore_patterns("saved_model.pb", "variables"))
        saver, prefix = meta.saver_def, os.path.join(folder, "variables", "variables")
        os.makedirs(os.path.dirname(prefix))
        graph.prune(saver.filename_tensor_name, saver.save_tensor_name)(tf.constant(prefix))
        with open(os.path.join(folder, "saved_model.pb"), "wb") as file:
            file.write(SavedModel(saved_model_schema_version=1, meta_graphs=[meta]).SerializeToString())


def whole(filepath):
    """Returns the name of a file, unless Keras writes the weights of layers alone to such files."""
    if re.search(r"(?<!\.weights)\.h(df)?5$", str(filepath)):
        raise ValueError(f"{filepath} would have no weights: choose a name that ends in .keras or .weights.h5")
    return filepath


def unpack(data):
    """Returns the features and labels of a batch."""
    features, labels, weights = tf.keras.utils.unpack_x_y_sample_weight(data)
    if weights is not None:
        raise ValueError("the loss is the Estimator's, which no sample_weight or class_weight changes: leave them out")
    return features, labels


def call(signature, features, labels=None):
    """Calls a signature with those tensors of a batch that it takes."""
    given = {**dict(components(features, "features")), **dict(components(labels, "labels"))}
    takes = signature.structured_input_signature[1]
    if missing := sorted(takes.keys() - given.keys()):
        raise ValueError(f"the batch has no {', '.join(missing)}; it has {', '.join(sorted(given))}")
    tensors = {name: tf.convert_to_tensor(given[name]) for name in takes}
    for name, each in tensors.items():
        if not takes[name].is_compatible_with(each):
            raise ValueError(f"{name} of the batch is {each.dtype.name} {each.shape}, and not {takes[name]}")
    return signature(**tensors)


def saved(graph):
    """Returns the variables of a graph that the Estimator's checkpoint has: weights, slots, averages and the step."""
    return graph.graph.get_collection("variables")


def set_factor(graph, factor):
    """Multiplies the learning rate of a graph's next steps."""
    for each in graph.variables:
        if name_of(each) == FACTOR:
            each.assign(factor)


def name_of(variable):
    """Returns a variable's name in the graph."""
    return variable.name.partition(":")[0]
