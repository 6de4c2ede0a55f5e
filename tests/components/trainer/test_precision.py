"""A declared precision, on every path and under every strategy: it trains, and what is served is float32."""

from __future__ import annotations

import pytest

# Strategies by the name of `tests.techniques.options`.
MIRRORED = {"strategy": "mirrored", "devices": {"cpu": 2}}
CENTRAL = {"strategy": "central_storage", "devices": {"cpu": 2}}
WORKERS = {"strategy": "multi_worker_mirrored", "workers": 2}
SERVERS = {"strategy": "parameter_server", "workers": 2, "ps": 1}
PATHS = ("estimator", "keras", "keras_custom_loop")


# Of inputs of a thousand the gradients of float16 overflow, until the scale of the loss is small.
STEEP = """
import tensorflow as tf

def steep(num_classes):
    image = tf.keras.Input((28, 28, 1))
    return tf.keras.Model(image, tf.keras.layers.Dense(num_classes)(tf.keras.layers.Flatten()(image) * 1000.0))
"""


def _train(training, settings, path, precision, strategy=None, steps=40, **more):
    import tensorflow as tf

    train = {"distribution": {"train": strategy}} if strategy else {}
    values = {"path": path, "precision": precision, "train_steps": steps, **train, **more}
    model_folder, run = training.run(settings(values, path=path), steps=steps)
    served = tf.saved_model.load(str(model_folder / "Format-Serving")).signatures["images"]
    assert served.structured_outputs["logits"].dtype == tf.float32
    assert served.structured_outputs["probabilities"].dtype == tf.float32
    assert not _in_half(str(model_folder / "Format-Serving"))
    assert run.get_float_custom_property("last_step") >= steps
    return run


def _in_half(saved_model):
    """The operations of a model that compute in 16 bits."""
    from tensorflow.core.framework import types_pb2
    from tensorflow.python.saved_model.loader_impl import parse_saved_model

    graph = parse_saved_model(saved_model).meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    half = (types_pb2.DT_BFLOAT16, types_pb2.DT_HALF)
    return {node.op for node in nodes if any(value.type in half for value in node.attr.values())}


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "path", ["keras", *(pytest.param(path, marks=pytest.mark.long) for path in ("estimator", "keras_custom_loop"))]
)
def test_float16_counts_what_it_skips(training, settings, tmp_path, monkeypatch, path):
    (tmp_path / "steep_network.py").write_text(STEEP)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = {"model": "steep_network:steep", "optimizer": {"name": "sgd", "learning_rate": 1e-7}}
    run = _train(training, settings, path, "mixed_float16", MIRRORED, steps=20, **own)
    assert 3 <= run.get_float_custom_property("skipped_steps") <= 15


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "path", ["keras", *(pytest.param(path, marks=pytest.mark.long) for path in ("estimator", "keras_custom_loop"))]
)
def test_nothing_is_said_of_skipped_steps_in_bfloat16(training, settings, path):
    run = _train(training, settings, path, "mixed_bfloat16", steps=4)
    assert not run.has_custom_property("skipped_steps")


@pytest.mark.long
@pytest.mark.equivalence
@pytest.mark.timeout(240)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("strategy", [None, MIRRORED, CENTRAL, WORKERS], ids=["one", "mirrored", "central", "workers"])
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_a_precision_trains_under_a_strategy(training, settings, path, strategy, precision):
    run = _train(training, settings, path, precision, strategy)
    assert run.get_float_custom_property("eval_average_loss") < 2.0
    assert run.has_custom_property("skipped_steps") == (precision == "mixed_float16")
    if precision == "mixed_float16":
        assert run.get_float_custom_property("skipped_steps") < 20


@pytest.mark.long
@pytest.mark.equivalence
@pytest.mark.timeout(240)
@pytest.mark.parametrize("path", PATHS)
def test_bfloat16_trains_with_parameter_servers(training, settings, path):
    _train(training, settings, path, "mixed_bfloat16", SERVERS)
