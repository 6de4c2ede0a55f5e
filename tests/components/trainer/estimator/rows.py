"""Sums an embedding's rows of two replicas, as graphs of multi_worker_mirrored do; prints the largest dimensions."""

from __future__ import annotations

import json

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import collective_util, cross_device_utils

from tfx_estimator.components.trainer.estimator import patches
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator

bring_back_estimator()

v1 = tf.compat.v1
ROWS, PLACES = 5000, (4, 32)
SIZES = ((1, 3), (4, 0), (20, 30), (200, 1), (2, 2))


def main() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    patches._PLACES = PLACES
    patches.apply(patches.REPLICA_PATCHES)
    keys, devices = cross_device_utils.CollectiveKeys(), ["/cpu:0", "/cpu:1"]
    group, reduced, given = keys.get_group_key(devices), [], []
    with tf.Graph().as_default(), v1.Session() as session:
        for device in devices:
            launcher = cross_device_utils.CollectiveReplicaLauncher(group, 2, keys, device, collective_util.Options())
            given.append((v1.placeholder(tf.int64, [None]), v1.placeholder(tf.float32, [None, 2])))
            rows, values = given[-1]
            slices = launcher.all_reduce_indexed_slices(
                tf.IndexedSlices(values, rows, tf.constant([ROWS, 2], tf.int64))
            )
            reduced.append((slices.indices, slices.values))
        drawn = np.random.default_rng(1)
        for sizes in SIZES:
            # Rows repeat, and sums of whole numbers are exact.
            batches = [(drawn.integers(0, 300, size), drawn.integers(-9, 9, (size, 2))) for size in sizes]
            expected = np.zeros((ROWS, 2))
            for rows, values in batches:
                np.add.at(expected, rows, values)
            note = v1.RunMetadata()
            feeds = {place: value for pair, batch in zip(given, batches) for place, value in zip(pair, batch)}
            found = session.run(reduced, feeds, v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), note)
            for rows, values in found:
                assert sorted(rows) == sorted({*batches[0][0], *batches[1][0]})
                np.testing.assert_array_equal(values, expected[rows])
            nodes = [node for device in note.step_stats.dev_stats for node in device.node_stats]
            sizes = [dim.size for node in nodes for out in node.output for dim in out.tensor_description.shape.dim]
            print(json.dumps(max(sizes)), flush=True)


if __name__ == "__main__":
    main()
