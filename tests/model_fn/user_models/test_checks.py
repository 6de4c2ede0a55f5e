"""What a step of the user's cannot have, and what a model must bring."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.estimator.first_call import call_again, call_first
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.model_fn.user_models.checks import check_compiled, refuse_step_options
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.trainer import TrainerSection

pytestmark = pytest.mark.unit

METHODS = ("train_step", "test_step", "compute_loss", "compute_metrics")


@pytest.mark.parametrize("base", ["Model", "Sequential"])
@pytest.mark.parametrize("path", ["keras", "estimator", "in the graph"])
@pytest.mark.parametrize("method", ["", *METHODS])
def test_of_a_model_that_is_not_compiled_it_is_refused_on_every_path(monkeypatch, method, path, base):
    from tfx_estimator.components.trainer.keras import model

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
        given = call_first(network, Settings(declaration=None, label_names=("a", "b", "c")), spec)
        if path == "estimator":
            return given
        with tf.Graph().as_default():
            return call_again(network, 3, {}, given)

    if not method:
        look()
        return
    with pytest.raises(UserCodeError, match=f"Own that is not compiled, has a {method} of its own") as caught:
        look()
    assert caught.value.todo == f"compile the model in the function, with its loss; or remove {method}"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("gradient_accumulation", 2),
        ("parallel_parts", 2),
        ("model_parallel", {"devices": ["cpu:0", "cpu:1"], "layers": {"a": 1}}),
        ("pipeline_parallel", {"stages": 2, "microbatches": 2}),
        ("xla", True),
        ("precision", "mixed_bfloat16"),
        ("", None),
    ],
)
def test_options_of_the_built_in_step_are_refused_where_another_trains(option, value):
    declared = {"train_steps": 9, "model": "mine:net", **({option: value} if option else {"parallel_parts": "auto"})}
    section = TrainerSection.parse_obj(declared)
    if not option:
        refuse_step_options(section, "is compiled")
        return
    with pytest.raises(UserCodeError, match=f"trainer.{option} is declared, and 'mine:net' is compiled"):
        refuse_step_options(section, "is compiled")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"loss": None}, "compiled without a loss"),
        ({"loss": "categorical_crossentropy"}, "of one-hot labels"),
        ({"optimizer": "ema"}, "use_ema"),
        ({"optimizer": "tf1"}, "compiled with GradientDescentOptimizer, an optimizer of TensorFlow 1"),
        ({}, ""),
    ],
)
def test_what_could_not_be_evaluated_or_kept_is_refused(options, told):
    optimizers = {
        "ema": lambda: tf.keras.optimizers.SGD(0.1, use_ema=True),
        "tf1": lambda: tf.compat.v1.train.GradientDescentOptimizer(0.1),
    }
    if "optimizer" in options:
        options = {"optimizer": optimizers[options["optimizer"]]()}
    image = tf.keras.Input([4], name="image")
    model = tf.keras.Model(image, tf.keras.layers.Dense(3, activation="softmax")(image))
    model.compile(**{"optimizer": "sgd", "loss": "sparse_categorical_crossentropy", **options})
    arguments = model, "nets:mine", model.output
    if not told:
        check_compiled(*arguments)
        return
    with pytest.raises(UserCodeError, match=told):
        check_compiled(*arguments)
