"""Weights that cannot be read, and patterns of `trainer.warm_start.exclude` that are of nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from tfx_estimator.model_fn.user_models.warm_start import match
from tfx_estimator.pipeline.base.errors import UserCodeError


@pytest.fixture
def stored(tmp_path):
    """A checkpoint of Keras, its variables and their shapes."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(64, name="hidden"), tf.keras.layers.Dense(4, name="logits")])
    model.build((None, 32))
    prefix = tf.train.Checkpoint(model=model).save(str(tmp_path / "model.ckpt"))
    return prefix, {weight.name.partition(":")[0]: weight.shape.as_list() for weight in model.weights}


@pytest.mark.parametrize("kind", ["Keras", "V1"])
@pytest.mark.parametrize("damage", ["no data", "cut data", "no index"])
def test_damaged_weights_are_told_with_their_path(stored, tmp_path, kind, damage):
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


@pytest.mark.parametrize("scope", ["", "classifier/"])
def test_a_pattern_takes_out_the_same_with_the_models_own_name_and_without(stored, scope):
    prefix, shapes = stored
    shapes = {f"{scope}{name}": shape for name, shape in shapes.items()}

    def taken(*exclude: str) -> list[str]:
        return sorted(name.removeprefix(scope) for name in match(prefix, shapes, exclude).keys)

    assert taken("logits/*") == taken(f"{scope}logits/*") == ["hidden/bias", "hidden/kernel"]
    assert taken("*/bias") == ["hidden/kernel", "logits/kernel"]
    # Of the checkpoint, and not of this model: it would not be taken either way.
    assert len(taken("save_counter")) == 4
    # On Keras it took out each bias, and in an Estimator none.
    for pattern in ("bias", "logit/*", "[x]", "", "Logits/*"):
        with pytest.raises(UserCodeError) as caught:
            taken(pattern)
        assert f"trainer.warm_start.exclude: no variable of the model fits `{pattern}`" in str(caught.value)
        assert "hidden/bias, hidden/kernel, logits/bias, logits/kernel" in caught.value.expected
        if pattern == "logit/*":
            assert caught.value.todo == "did you mean `logits/*`?"
    with pytest.raises(UserCodeError) as caught:
        taken("*")
    assert "trainer.warm_start.exclude: * leaves nothing of the weights in" in str(caught.value)
