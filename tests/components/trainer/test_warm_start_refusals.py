"""Weights that cannot be read, and patterns of `trainer.warm_start.exclude` that are of nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfx_estimator.pipeline.errors import UserCodeError


@pytest.fixture
def stored(tmp_path):
    """A checkpoint of Keras, its variables and their shapes."""
    import tensorflow as tf

    model = tf.keras.Sequential([tf.keras.layers.Dense(64, name="hidden"), tf.keras.layers.Dense(4, name="logits")])
    model.build((None, 32))
    prefix = tf.train.Checkpoint(model=model).save(str(tmp_path / "model.ckpt"))
    return prefix, {weight.name.partition(":")[0]: weight.shape.as_list() for weight in model.weights}


@pytest.mark.parametrize("kind", ["Keras", "V1"])
@pytest.mark.parametrize("damage", ["no data", "cut data", "no index"])
def test_damaged_weights_are_told_with_their_path(stored, tmp_path, kind, damage):
    import tensorflow as tf

    from tfx_estimator.model_fn.warm_start import match

    prefix, shapes = stored
    if kind == "V1":
        prefix = str(tmp_path / "graph.ckpt")
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            for name, shape in shapes.items():
                tf.compat.v1.get_variable(name, shape)
            session.run(tf.compat.v1.global_variables_initializer())
            tf.compat.v1.train.Saver().save(session, prefix)
    assert len(match(prefix, shapes, ()).keys) == 4
    data, index = Path(f"{prefix}.data-00000-of-00001"), Path(f"{prefix}.index")
    if damage == "no data":
        data.unlink()
    elif damage == "cut data":
        data.write_bytes(data.read_bytes()[:100])
    else:
        index.write_bytes(b"no table")
    with pytest.raises(UserCodeError) as caught:
        match(prefix, shapes, ())
    assert f"trainer.warm_start: the checkpoint {prefix} is damaged or incomplete: " in str(caught.value)
    assert caught.value.todo == "copy them again from where they come, or name another checkpoint"
