"""A graph's memory and transfers on one and two devices, compared with manual calculations."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.dry_run import graph_costs

KB = 1024


@pytest.fixture
def two_devices():
    """A graph whose middle is on a second device; in order: the batch, then 1, 2, 2 and 2 KB."""
    with tf.Graph().as_default():
        batch = tf.compat.v1.placeholder(tf.float32, [256])
        first = tf.sin(batch)
        with tf.device("/device:GPU:1"):
            doubled = tf.raw_ops.Tile(input=first, multiples=tf.constant([2], tf.int64))
            second = tf.sin(doubled)
        return tf.sin(second)


def test_a_tensor_is_sent_once_to_each_other_device(two_devices):
    ops = graph_costs.needed([two_devices])
    places = graph_costs.devices_of(ops, {})
    assert [places[op] for op in ops] == [0, 0, 1, 1, 1, 0]
    assert graph_costs.sent_bytes(ops, places) == KB + 2 * KB


def test_each_device_holds_its_own_and_received_tensors(two_devices):
    ops = graph_costs.needed([two_devices])
    places = graph_costs.devices_of(ops, {})
    first, second = (graph_costs.peak_bytes(ops, lambda op, here=here: places[op] == here) for here in (0, 1))
    # The batch and its sine; then the returned tensor and its sine.
    assert first == 2 * KB + 2 * KB
    # The received tensor and its double; then that and its sine.
    assert second == 2 * KB + 2 * KB
    half = ops[: ops.index(next(op for op in ops if op.type == "Tile")) + 1]
    assert graph_costs.peak_bytes(half, lambda op: places[op] == 1) == KB + 2 * KB + 8
    assert graph_costs.peak_bytes(half, lambda op: places[op] == 0) == 2 * KB


def test_an_operation_without_a_device_is_on_its_variables_device():
    with tf.Graph().as_default() as graph:
        handle = tf.compat.v1.placeholder(tf.resource, [])
        value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        value.op._set_device("")
        tf.sin(value)
    places = graph_costs.devices_of(graph.get_operations(), {handle.ref(): "/job:localhost/device:CPU:1"})
    assert [places[op] for op in graph.get_operations()] == [1, 1, 0]


def test_the_most_expensive_branch_is_counted_and_a_loop_inside_is_opaque():
    def build(branch):
        with tf.Graph().as_default():
            batch = tf.compat.v1.placeholder(tf.float32, [16, 16])
            flag = tf.compat.v1.placeholder(tf.bool, [])
            return graph_costs.needed([tf.cond(flag, lambda: branch(batch), lambda: batch)])

    product = build(lambda batch: tf.matmul(tf.sin(batch), batch))
    assert "StatelessIf" in {op.type for op in product}
    assert graph_costs.opaque(product) == []
    assert graph_costs.dearest_flops(product) == 2 * 16**3
    # The batch, its sine and their product; in addition to the flag.
    assert graph_costs.peak_bytes(product) == pytest.approx(3 * KB, abs=16)
    loop = build(lambda batch: tf.while_loop(lambda each: True, lambda each: [each * 2], [batch])[0])
    assert graph_costs.opaque(loop) == ["StatelessWhile"]


@pytest.mark.parametrize("onednn", [True, False])
def test_onednn_copies_a_float16_convolution_in_float32(monkeypatch, onednn):
    # Whether TensorFlow uses it depends on the processor.
    monkeypatch.setattr(graph_costs, "_pywrap_util_port", SimpleNamespace(IsMklEnabled=lambda: onednn))

    def peak(dtype):
        with tf.Graph().as_default():
            images = tf.compat.v1.placeholder(dtype, [4, 8, 8, 1])
            kernel = tf.compat.v1.placeholder(dtype, [1, 1, 1, 32])
            return graph_costs.peak_bytes(graph_costs.needed([tf.nn.conv2d(images, kernel, 1, "VALID")]))

    given, made = 4 * 8 * 8 + 32, 4 * 8 * 8 * 32
    assert peak(tf.float32) == 4 * given + 4 * made + onednn * 4 * made
    assert peak(tf.bfloat16) == 2 * given + 2 * made + onednn * 2 * made
    assert peak(tf.float16) == 2 * given + 2 * made + onednn * 4 * made
