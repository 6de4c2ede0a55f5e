"""What a class of the user's trains and evaluates by is called, or refused."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.base.errors import UserCodeError

pytestmark = pytest.mark.unit

METHODS = ("train_step", "test_step", "compute_loss", "compute_metrics")


@pytest.fixture(scope="module")
def tf():
    import tensorflow

    return tensorflow


@pytest.mark.parametrize("base", ["Model", "Sequential"])
@pytest.mark.parametrize("path", ["keras", "estimator", "in the graph"])
@pytest.mark.parametrize("method", ["", *METHODS])
def test_of_a_model_that_is_not_compiled_it_is_refused_on_every_path(tf, monkeypatch, method, path, base):
    from tfx_estimator.components.trainer.estimator.first_call import call_first
    from tfx_estimator.components.trainer.keras import model
    from tfx_estimator.components.trainer.settings import Settings
    from tfx_estimator.pipeline.config.trainer import TrainerSection

    kind = getattr(tf.keras, base)
    if method:
        kind = type("Own", (kind,), {method: lambda *_, **__: None})

    def network(num_classes):
        if path == "in the graph" and tf.executing_eagerly():
            raise ValueError("only there")
        layers = tf.keras.layers
        if base == "Sequential":
            return kind([layers.Flatten(), layers.Dense(num_classes)])
        image = tf.keras.Input([4, 4, 1])
        return kind(image, layers.Dense(num_classes)(layers.Flatten()(image)))

    spec = {"image": tf.io.FixedLenFeature([4, 4, 1], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)}
    maker = model.ModelMaker(TrainerSection(model="own:network", train_steps=1), 3, spec)
    monkeypatch.setattr(model, "find_function", lambda _: network)

    def look():
        if path == "keras":
            return maker.make()
        first = call_first(network, Settings(declaration=None, label_names=("a", "b", "c")), spec)
        if path == "estimator":
            return first
        with tf.Graph().as_default():
            return first.call_again(network, 3, {})

    if not method:
        look()
        return
    with pytest.raises(UserCodeError, match=f"Own that is not compiled, has a {method} of its own") as caught:
        look()
    assert caught.value.todo == f"compile the model in the function, with its loss; or remove {method}"
