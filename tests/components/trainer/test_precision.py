"""A declared precision trains on every path and under every strategy, and the exported model is float32."""

from __future__ import annotations

import pytest

from tests.components.trainer.conftest import PATHS, each_path

# Strategies by the name of `tests.techniques.options`.
MIRRORED = {"strategy": "mirrored", "devices": {"cpu": 2}}
CENTRAL = {"strategy": "central_storage", "devices": {"cpu": 2}}
WORKERS = {"strategy": "multi_worker_mirrored", "workers": 2}
SERVERS = {"strategy": "parameter_server", "workers": 2, "ps": 1}


@pytest.fixture
def run(train):
    """Trains in a precision; checks the exported model; returns the model_run."""

    def run(path, precision, strategy=None, steps=40, **more):
        import tensorflow as tf

        distribution = {"distribution": {"train": strategy}} if strategy else {}
        model, found = train(path, steps, precision=precision, **distribution, **more)
        served = tf.saved_model.load(str(model / "Format-Serving")).signatures["images"]
        assert {served.structured_outputs[name].dtype for name in ("logits", "probabilities")} == {tf.float32}
        assert not _ops_in_16_bits(str(model / "Format-Serving"))
        assert found.get_float_custom_property("last_step") >= steps
        return found

    return run


def _ops_in_16_bits(saved_model):
    """Returns the operations of a model that compute in 16 bits."""
    from tensorflow.core.framework import types_pb2
    from tensorflow.python.saved_model.loader_impl import parse_saved_model

    graph = parse_saved_model(saved_model).meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    half = (types_pb2.DT_BFLOAT16, types_pb2.DT_HALF)
    return {node.op for node in nodes if any(value.type in half for value in node.attr.values())}


@pytest.mark.timeout(180)
@each_path("keras")
def test_float16_counts_skipped_steps(run, path):
    own = {"model": "small:steep", "optimizer": {"name": "sgd", "learning_rate": 1e-7}}
    skipped = run(path, "mixed_float16", MIRRORED, steps=20, **own).get_float_custom_property("skipped_steps")
    assert 3 <= skipped <= 15


@pytest.mark.long
@pytest.mark.equivalence
@pytest.mark.timeout(240)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("strategy", [None, MIRRORED, CENTRAL, WORKERS], ids=["one", "mirrored", "central", "workers"])
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_a_precision_trains_under_a_strategy(run, path, strategy, precision):
    found = run(path, precision, strategy)
    assert found.get_float_custom_property("eval_average_loss") < 2.0
    assert found.has_custom_property("skipped_steps") == (precision == "mixed_float16")
    if precision == "mixed_float16":
        assert found.get_float_custom_property("skipped_steps") < 20


@pytest.mark.long
@pytest.mark.equivalence
@pytest.mark.timeout(240)
@pytest.mark.parametrize("path", PATHS)
def test_bfloat16_trains_with_parameter_servers(run, path):
    run(path, "mixed_bfloat16", SERVERS)
