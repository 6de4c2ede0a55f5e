"""Which device a layer is put on; that it trains there is shown in tests/equivalence."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tfx_estimator.model_fn.parallel.division import Division
from tfx_estimator.pipeline.base.errors import DeclarationError, UserCodeError

pytestmark = pytest.mark.unit

OPTION = "trainer.model_parallel"


def _network(name="dense1"):
    layers = tf.keras.layers
    inner = tf.keras.Sequential([layers.Dense(4, name="dense2")], name="inner")
    return tf.keras.Sequential([layers.Dense(3, name=name), inner, layers.Dense(2, name="logits")], name="net")


def test_the_longest_pattern_that_fits_decides():
    found = Division(OPTION, ("cpu:0", "cpu:1", "cpu:2"), {"*": 1, "dense*": 2, "dense1": 0, "d*": 1})
    assert [found.device_of(name)[-1] for name in ("conv", "dense1", "dense7", "drop")] == ["1", "0", "2", "1"]
    assert Division(OPTION, ("cpu:3", "cpu:1"), {"a": 1}).device_of("b") == "/device:CPU:3"


@pytest.mark.parametrize("graph", [False, True])
def test_what_is_inside_of_a_layer_is_where_the_layer_is(graph):
    division = Division(OPTION, ("cpu:0", "cpu:1"), {"inner": 1, "dense2": 0})
    # Nothing of it is run: a graph may name devices that are not there.
    with tf.Graph().as_default() as made:
        if graph:
            with division.used():
                network = _network()
            with division.used(network):
                outputs = network(tf.zeros([2, 3]))
            gradients = tf.gradients(outputs, network.trainable_variables)
            places = {variable.name: variable.device[-1] for variable in network.variables}
            assert places == {
                f"net/{layer}/{kind}:0": device
                for layer, device in (("dense1", "0"), ("inner/dense2", "1"), ("logits", "0"))
                for kind in ("kernel", "bias")
            }
            assert [gradient.device[-1] for gradient in gradients] == ["0", "0", "1", "1", "0", "0"]
            with pytest.raises(UserCodeError, match="no layer 'dense2'"):
                division.check(network)
            division = Division(OPTION, ("cpu:0", "cpu:1"), {"inner": 1})
            division.check(network)
            return
        # Of a functional model, which is built at once; what is called elsewhere is not moved.
        with division.used():
            image = tf.keras.Input((3,))
            network = tf.keras.Model(image, tf.keras.layers.Dense(2, name="inner")(image))
        assert {variable.device[-1] for variable in network.variables} == {"1"}
        before = len(made.get_operations())
        with division.used(network):
            tf.keras.layers.Dense(2, name="inner")(tf.zeros([2, 3]))
        assert not any("CPU:1" in each.device for each in made.get_operations()[before:])


def test_devices_that_are_not_there_are_refused():
    with pytest.raises(DeclarationError, match=r"trainer.model_parallel.devices asks for gpu:63"):
        Division(OPTION, ("cpu:0", "gpu:63"), {"a": 1})
