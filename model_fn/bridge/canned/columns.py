"""Feature columns as source code: layers that compute the same numbers, and the variables of their weights."""

from __future__ import annotations

import dataclasses
import itertools
import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge.canned.refusal import refused
from tfx_estimator.model_fn.bridge.canned.text import Source, call, indented, literal
from tfx_estimator.model_fn.bridge.canned.tracing import lines_of

# A larger vocabulary is written to its own file.
_FEW_WORDS = 20
_KERAS = "tf.keras.layers"


@dataclasses.dataclass(frozen=True)
class Input:
    """An input of the network; of any number of values in an example if its width is None."""

    dtype: str
    width: Optional[int]


class Columns:
    """Writes columns; ids are computed once. `weights` has places, by their names in the checkpoint."""

    def __init__(self, features: Mapping[str, Any], is_v2: bool = False) -> None:
        self.inputs: dict[str, Input] = {}
        self.lines: list[str] = []
        self.functions: list[str] = []
        self.parts: set[str] = set()
        self.files: dict[str, list[str]] = {}
        self.weights: dict[str, str] = {}
        self._is_v2 = is_v2
        self._features = features
        self.layers: set[str] = set()
        self._ids: dict[Any, str] = {}
        self._variables: set[str] = {"inputs", "tf", *keyword.kwlist}
        self._shared: dict[str, str] = {}

    def deep(self, column: Any) -> str:
        """Returns the expression of a dense column's values in the network's input."""
        own = clean(getattr(column, "shared_embedding_collection_name", column.name))
        variable = f"dnn/input_from_feature_columns/input_layer/{own}/embedding_weights"
        return self.dense(column, f"deep_{clean(column.name)}", variable)

    def linear(self, column: Any, units: int, combiner: str, scope: str = "linear/linear_model") -> str:
        """Returns the expression of a column's contribution to a linear model of this scope."""
        own, inner = f"linear_{clean(column.name)}", f"{scope}/{clean(column.name)}"
        if hasattr(column, "num_buckets"):
            name = self.layer(own)
            self.weights[f"{inner}/weights"] = f"{name}/rows"
            return self._bag(column, column.num_buckets, units, name, combiner=combiner)
        values = self.dense(column, f"{own}_input", f"{inner}/embedding_weights")
        name = self.layer(own)
        self.weights[f"{inner}/weights"] = f"{name}/kernel"
        return f"{call(f'{_KERAS}.Dense', units, use_bias=False, name=name)}({values})"

    def total(self, added: list[str], bias: str) -> list[str]:
        """Returns the lines of a linear model's call, after its variable, of contributions and a bias of this name."""
        self.parts.add("Total")
        name = self.layer("linear_bias")
        self.weights[bias] = f"{name}/bias"
        return [f"{call('Total', name=name)}(", "    [", *(f"        {each}," for each in added), "    ]", ")"]

    def dense(self, column: Any, name: str, variable: str, is_trained: bool = True) -> str:
        """Returns the expression of a dense column's values, with a layer of this name and a variable of that."""
        kind = _kind(column)
        if kind == "NumericColumn":
            return self._number(column)
        if kind == "BucketizedColumn":
            return self._hot(column, name)
        if kind == "IndicatorColumn":
            return self._hot(column.categorical_column, name)
        if kind == "EmbeddingColumn":
            name = self.layer(name)
            self.weights[variable] = f"{name}/rows"
            options: dict[str, Any] = {} if column.trainable and is_trained else {"trainable": False}
            inner = column.categorical_column
            options |= self._options(column, column.initializer, name)
            return self._bag(inner, inner.num_buckets, column.dimension, name, **options)
        if kind == "SharedEmbeddingColumn":
            of, scope = column.shared_embedding_column_creator, "" if self._is_v2 else "dnn/input_from_feature_columns/"
            given = (of._num_buckets, of.dimension, of._initializer, of._trainable and not self._is_v2)
            return self._share(column, of._name, f"{scope}{of._name}", *given)
        if kind == "_SharedEmbeddingColumn":
            shared = column.shared_embedding_collection_name
            rows = column.categorical_column.num_buckets
            given = (rows, column.dimension, column.initializer, column.trainable and is_trained)
            return self._share(column, shared, variable, *given)
        raise refused(f"the column {column.name!r}, a {kind},")

    def _number(self, column: Any) -> str:
        width = tf.TensorShape(column.shape).num_elements()
        if column.normalizer_fn is None:
            return self.input(column.key, "float32", width)
        if column not in self._ids:
            function = self._normalizer(column, width)
            name = self.layer(_layer_of(column, "normalized"))
            self.parts.add("Normalized")
            made = call("Normalized", Source(function), width, name=name)
            self._ids[column] = self.line(name, f"{made}({self.input(column.key, 'float32', width)})")
        return self._ids[column]

    def _normalizer(self, column: Any, width: int) -> str:
        """Writes the function of a column's normalizer_fn, and returns its name."""
        name = self.variable(f"normalize_{column.key}")
        value = self._feature(column.key)
        shape = [None, *(value.shape[1:] if value.ndim > 1 else (1,))]
        title = f"the normalizer_fn of the column {column.name!r}"
        lines = lines_of(title, column.normalizer_fn, {"value": tf.TensorSpec(shape, value.dtype)})
        # The column called it with the feature's own shape and type.
        if shape[1:] != [width]:
            lines.insert(0, f"value = {call('tf.reshape', Source('value'), [-1, *shape[1:]])}")
        if value.dtype != np.float32:
            lines.insert(0, f"value = tf.cast(value, tf.{tf.as_dtype(value.dtype).name})")
        self.function(name, ["value"], lines)
        return name

    def _hot(self, column: Any, name: str) -> str:
        self.parts.add("MultiHot")
        return f"{call('MultiHot', column.num_buckets, name=self.layer(name))}({self._weighted(column)})"

    def _bag(self, column: Any, rows: int, units: int, name: str, **options: Any) -> str:
        self.parts.add("Bag")
        return f"{call('Bag', rows, units, **options, name=name)}({self._weighted(column)})"

    def _share(
        self, column: Any, shared: str, weights: str, rows: int, units: int, initializer: Any, is_trained: bool
    ) -> str:
        """Returns a call of the layer that all columns of a shared embedding use."""
        if shared not in self._shared:
            layer = self._shared[shared] = self.variable(f"{shared}_rows")
            self.parts.add("Bag")
            name = self.layer(f"deep_{clean(shared)}")
            options = self._options(column, initializer, name)
            if self._is_v2:
                self.lines.append("# The Estimator never trained it: its optimizer did not get shared embeddings.")
            frozen = {} if is_trained else {"trainable": False}
            self.weights[weights] = f"{name}/rows"
            made = call("Bag", rows, units, **options, **frozen, name=name)
            self.lines.append(f"{layer} = {made}")
        return f"{self._shared[shared]}({self._weighted(column.categorical_column)})"

    def _options(self, column: Any, initializer: Any, name: str) -> dict[str, Any]:
        """Returns the options of an embedding's lookup, and its initializer for training from scratch."""
        options = {"combiner": column.combiner}
        if column.max_norm is not None:
            options["max_norm"] = float(column.max_norm)
        if source := self.initializer(initializer):
            return {**options, "initializer": source}
        self.lines.append(f"# The rows of {name} are initialised to 0: pass an initializer to train from scratch.")
        return options

    def initializer(self, given: Any) -> Optional[Source]:
        """Returns the source of an initializer; None if Keras has no such class."""
        kind = getattr(tf.keras.initializers, type(given).__name__, None)
        config = {} if kind is None else given.get_config()
        options = {key: value for key, value in config.items() if key != "dtype" and value is not None}
        if kind is None or not all(isinstance(value, (bool, int, float, str)) for value in options.values()):
            return None
        return Source(call(f"tf.keras.initializers.{kind.__name__}", **options))

    def _weighted(self, column: Any) -> str:
        """Returns the ids of a column, with their weights if it has any."""
        if _kind(column) != "WeightedCategoricalColumn":
            return self.ids(column)
        weights = self.input(column.weight_feature_key, "float32", None)
        return f"[{self.ids(column.categorical_column)}, {weights}]"

    def ids(self, column: Any) -> str:
        """Returns the variable with a categorical column's ids, which is assigned once."""
        if column not in self._ids:
            if (write := self._writers.get(_kind(column))) is None:
                raise refused(f"the column {column.name!r}, a {_kind(column)},")
            name = self.layer(_layer_of(column, "ids"))
            self._ids[column] = self.line(name, write(self, column, name))
        return self._ids[column]

    def layer(self, name: str) -> str:
        """Returns a unique layer name, numbered if necessary, since two columns may have the same name."""
        found = _unlike(name, self.layers)
        self.layers.add(found)
        return found

    def function(self, name: str, arguments: list[str], lines: list[str]) -> None:
        """Writes a function that layers call."""
        registered = '@tf.keras.utils.register_keras_serializable("network")'
        self.functions.append(f"{registered}\ndef {name}({', '.join(arguments)}):\n{indented(lines)}\n")

    def variable(self, name: str) -> str:
        """Returns a unique Python name; two layer names may map to the same one."""
        found = _unlike(_name(name), self._variables)
        self._variables.add(found)
        return found

    def line(self, name: str, expression: str) -> str:
        """Writes an assignment, and returns its variable."""
        variable = self.variable(name)
        self.lines.append(f"{variable} = {expression}")
        return variable

    def _bucketized(self, column: Any, name: str) -> str:
        source = column.source_column
        number = self._number(source)
        boundaries = [float(each) for each in column.boundaries]
        buckets = len(boundaries) + 1
        if tf.TensorShape(source.shape).num_elements() == 1:
            return f"{call(f'{_KERAS}.Discretization', boundaries, name=name)}({number})"
        self.parts.add("Apart")
        own = self.layer(f"{name}_each")
        each = f"{call(f'{_KERAS}.Discretization', boundaries, name=own)}({number})"
        return f"{call('Apart', buckets, name=name)}({self.line(own, each)})"

    def _hashed(self, column: Any, name: str) -> str:
        self.parts.add("HashBucket")
        value = self._category(column.key, column.dtype)
        return f"{call('HashBucket', column.hash_bucket_size, name=name)}({value})"

    def _identity(self, column: Any, name: str) -> str:
        self.parts.add("Identity")
        value = self._category(column.key, tf.int64)
        default = {} if column.default_value is None else {"default": int(column.default_value)}
        return f"{call('Identity', column.num_buckets, **default, name=name)}({value})"

    def _listed(self, column: Any, name: str) -> str:
        words = [each.item() if hasattr(each, "item") else each for each in column.vocabulary_list]
        return self._lookup(column, name, [each.decode() if isinstance(each, bytes) else each for each in words])

    def _filed(self, column: Any, name: str) -> str:
        with tf.io.gfile.GFile(column.vocabulary_file, "rb") as file:
            # Like TensorFlow's table: lines end only with \n, and each \r is dropped.
            lines = file.read().decode().replace("\r", "").removesuffix("\n").split("\n")[: column.vocabulary_size]
        return self._lookup(column, name, lines if column.dtype == tf.string else [int(line) for line in lines])

    def _lookup(self, column: Any, name: str, words: list) -> str:
        is_text, buckets = column.dtype == tf.string, column.num_oov_buckets
        if not is_text and buckets > 1:
            raise refused(f"num_oov_buckets of the column {column.name!r}, whose words are numbers,")
        self.parts.add("WordIds")
        value = self._category(column.key, column.dtype)
        known: Any = words
        # A word in a file is a line.
        if len(words) > _FEW_WORDS and not any(end in str(each) for each in words for end in "\r\n"):
            file = f"{clean(column.key)}.txt"
            while self.files.setdefault(file, [str(each) for each in words]) != [str(each) for each in words]:
                file = f"_{file}"
            self.parts.add("words_of")
            known = Source(f"words_of({literal(file)}{'' if is_text else ', int'})")
        kind, absent = "StringLookup", {"mask_token": Source("NO_WORD")}
        if not is_text:
            # Keras requires a different number for unknown words.
            kind, absent = "IntegerLookup", {"mask_token": Source("NO_NUMBER"), "oov_token": Source("NO_NUMBER + 1")}
        own = self.layer(f"{name}_places")
        places = call(f"{_KERAS}.{kind}", vocabulary=known, num_oov_indices=max(buckets, 1), **absent, name=own)
        options = {"buckets": buckets} if buckets else {}
        if not buckets and column.default_value != -1:
            options["default"] = int(column.default_value)
        found = self.line(own, f"{places}({value})")
        return f"{call('WordIds', len(words), **options, name=name)}({found})"

    def _crossed(self, column: Any, name: str) -> str:
        inputs, kinds = [], []
        for key in _leaves(column):
            if not isinstance(key, str):
                inputs.append(self.ids(key))
                kinds.append("ids")
                continue
            feature = self._feature(key)
            inputs.append(self._category(key, _dtype(feature)))
            kinds.append("present" if isinstance(feature, tf.compat.v1.SparseTensorValue) else "values")
        self.parts.add("Crossed")
        hash_key = {} if column.hash_key is None else {"hash_key": column.hash_key}
        made = call("Crossed", column.hash_bucket_size, kinds, **hash_key, name=name)
        return f"{made}([{', '.join(inputs)}])"

    _writers: Mapping[str, Callable[[Columns, Any, str], str]] = {
        "BucketizedColumn": _bucketized,
        "HashedCategoricalColumn": _hashed,
        "IdentityCategoricalColumn": _identity,
        "VocabularyListCategoricalColumn": _listed,
        "VocabularyFileCategoricalColumn": _filed,
        "CrossedColumn": _crossed,
    }

    def _feature(self, key: str) -> Any:
        if key not in self._features:
            raise refused(f"the column of {key!r}, a feature that the input_fn lacks,", "add it to the input_fn")
        return self._features[key]

    def _category(self, key: str, dtype: tf.DType) -> str:
        self._feature(key)
        return self.input(key, "string" if dtype == tf.string else "int64", None)

    def input(self, key: str, dtype: str, width: Optional[int]) -> str:
        """Returns the expression of a feature."""
        found = self.inputs.setdefault(key, Input(dtype, width))
        if found.dtype != dtype:
            raise refused(
                f"the feature {key!r}, which is a number to one column and a category to another,",
                "return it twice from the input_fn, by two names",
            )
        if found.width != width:
            raise refused(f"the feature {key!r}, whose columns have different shapes,")
        return f"inputs[{literal(key)}]"


def _leaves(cross: Any) -> list[Any]:
    """Returns the keys of a cross, with nested crosses flattened, in the order of its hash."""
    found: list[Any] = []
    for key in cross.keys:
        found += _leaves(key) if _kind(key) == "CrossedColumn" else [key]
    return found


def _dtype(feature: Any) -> tf.DType:
    values = getattr(feature, "values", feature)
    return tf.string if values.dtype == object else tf.as_dtype(values.dtype)


def _kind(column: Any) -> str:
    return type(column).__name__


def _layer_of(column: Any, what: str) -> str:
    """Returns the name of a layer for a column."""
    name = f"{clean(column.name)}_{what}"
    return name if re.match(r"[A-Za-z0-9.]", name) else f"column{name}"


def _unlike(name: str, others: set[str]) -> str:
    numbered = (f"{name}{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], numbered) if each not in others)


def clean(name: str) -> str:
    """Returns a column's name in the names of variables and layers."""
    return re.sub(r"[^A-Za-z0-9_.\-]", "_", name)


def _name(name: str) -> str:
    """Returns a valid Python name."""
    found = re.sub(r"\W", "_", name)
    return f"_{found}" if found[0].isdigit() else found
