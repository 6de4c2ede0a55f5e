"""An evaluation's batches: one for each replica in every step, the last step included."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("count", [3, 40, 99, 100, 101, 102, 103, 199, 200])
@pytest.mark.parametrize(("batch", "replicas"), [(50, 2), (20, 3), (100, 1)])
def test_data_end_with_a_batch_for_every_replica(count, batch, replicas):
    import tensorflow as tf

    from tfx_estimator.data.sharding import batch_sizes

    dataset = tf.data.Dataset.range(count)
    sizes = batch_sizes(dataset, batch, replicas)
    batches = [len(each) for each in dataset.batch(16).rebatch(sizes, drop_remainder=False)]
    assert sum(batches) == count
    assert len(batches) % replicas == 0
    assert all(0 < size <= batch for size in batches)
    # As many steps as one device takes for the same global batch, full ones up to the last but one.
    step = batch * replicas
    assert len(batches) // replicas == -(-count // step)
    assert batches[: max(count // step - 1, 0) * replicas] == [batch] * max(count // step - 1, 0) * replicas
