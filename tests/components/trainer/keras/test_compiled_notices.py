"""What is said of a compiled model of the user's."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config.trainer import TrainerSection

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("options", "declared", "said"),
    [
        ({}, [], []),
        ({"jit_compile": True}, [], ["jit_compile=True has no effect, in the compile of own:net"]),
        ({"run_eagerly": True}, ["trainer.seed"], ["run_eagerly=True has no effect, in the compile of own:net"]),
        (
            {"steps_per_execution": 10},
            [],
            [
                "steps_per_execution=10 has no effect, in the compile of own:net; trainer.steps_per_execution says how "
                "many steps one call does"
            ],
        ),
        ({"steps_per_execution": 1}, [], []),
        (
            {},
            ["trainer.optimizer.name", "trainer.seed"],
            ["trainer.optimizer.name has no effect: the compiled model of own:net brings its own"],
        ),
    ],
)
def test_what_has_no_effect_is_told(options, declared, said):
    import tensorflow as tf

    from tfx_estimator.components.trainer.keras.compiled_notices import compiled_notices

    model = tf.keras.Sequential([tf.keras.layers.Dense(3, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy", **options)
    section = TrainerSection(model="own:net", train_steps=1, path="keras")
    first, *more = compiled_notices(model, section, declared)
    assert first == (
        "own:net returns a compiled model: it is trained by its own optimizer, SGD, and loss, "
        "sparse_categorical_crossentropy"
    )
    assert more == said


@pytest.mark.parametrize(
    ("optimizer", "told"), [("Nadam", True), ("scaled Nadam", True), ("legacy.Nadam", False), ("Adam", False)]
)
def test_an_optimizer_that_counts_traces_is_told(optimizer, told):
    import tensorflow as tf

    from tfx_estimator.components.trainer.keras.compiled_notices import compiled_notices

    module, _, name = optimizer.replace("scaled ", "").rpartition(".")
    made = getattr(tf.keras.optimizers.legacy if module else tf.keras.optimizers, name)()
    if "scaled" in optimizer:
        made = tf.keras.mixed_precision.LossScaleOptimizer(made)
    model = tf.keras.Sequential([tf.keras.layers.Dense(3, activation="softmax")])
    model.compile(made, "sparse_categorical_crossentropy")
    section = TrainerSection(model="own:net", train_steps=1, path="keras")
    said = compiled_notices(model, section, [])
    assert any("tf.keras.optimizers.legacy.Nadam counts steps" in each for each in said) is told


def test_its_metrics_are_named_before_keras_has_made_them():
    import tensorflow as tf

    from tfx_estimator.components.trainer.keras.compiled_notices import compiled_notices

    def share(labels, outputs):
        return tf.reduce_mean(outputs)

    class Own(tf.keras.Model):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.seen = tf.keras.metrics.Mean(name="loss")
            self.kept = tf.keras.metrics.Mean(name="kept")

    image = tf.keras.Input([4])
    model = Own(image, tf.keras.layers.Dense(3, activation="softmax")(image))
    top2 = tf.keras.metrics.SparseTopKCategoricalAccuracy(k=2, name="top2")
    model.compile("sgd", "sparse_categorical_crossentropy", ["accuracy", share], weighted_metrics=[top2])
    section = TrainerSection(model="own:net", train_steps=1, path="keras")
    first, *_ = compiled_notices(model, section, [])
    assert first.endswith(", and evaluated by its metrics as well, accuracy, share, top2, kept")
    model.compile(steps_per_execution="auto", optimizer="sgd", loss="sparse_categorical_crossentropy")
    *_, last = compiled_notices(model, section, [])
    assert last.startswith("steps_per_execution='auto' has no effect, in the compile of own:net; trainer.steps_per_exe")


@pytest.mark.parametrize("built", [True, False])
def test_an_added_metric_is_named(built):
    import tensorflow as tf

    from tfx_estimator.components.trainer.keras.compiled_notices import compiled_notices

    image = tf.keras.Input([4])
    model = tf.keras.Model(image, tf.keras.layers.Dense(3, activation="softmax")(image))
    model.add_metric(tf.reduce_mean(image), name="mean_out")
    model.compile("sgd", "sparse_categorical_crossentropy", ["mae"])
    if built:
        model.evaluate(tf.zeros([2, 4]), tf.zeros([2, 1]), verbose=0)
    (said,) = compiled_notices(model, TrainerSection(model="own:net", train_steps=1, path="keras"), [])
    assert said.endswith(", and evaluated by its metrics as well, mae, mean_out")


@pytest.mark.parametrize(
    ("last", "taken"),
    [
        (None, "they are taken for logits. A loss of tf.keras.losses with from_logits=… tells it"),
        ("softmax", "they are probabilities in made-up examples"),
        ("one number", ""),
    ],
)
def test_it_is_said_what_outputs_are_taken_for_where_the_loss_does_not_tell(last, taken):
    import tensorflow as tf

    from tfx_estimator.components.trainer.keras.compiled_notices import compiled_notices

    def own_crossentropy(labels, outputs):
        return outputs

    dense = tf.keras.layers.Dense(1 if last == "one number" else 3, activation="softmax" if last == "softmax" else None)
    model = tf.keras.Sequential([dense])
    model.compile("sgd", own_crossentropy)
    model(tf.zeros([1, 4]))
    said = compiled_notices(model, TrainerSection(model="own:net", train_steps=1, path="keras"), [])[1:]
    if not taken:
        assert not said
        return
    (told,) = said
    assert told.startswith(
        "the loss of own:net, own_crossentropy, does not tell whether the model's outputs are logits or probabilities: "
    )
    assert taken in told


@pytest.mark.parametrize("last", [None, "softmax"])
def test_a_loss_that_does_not_fit_the_last_layer_is_told(last):
    import tensorflow as tf

    from tfx_estimator.components.trainer.keras.compiled_notices import compiled_notices

    model = tf.keras.Sequential([tf.keras.Input([4], name="image"), tf.keras.layers.Dense(3, activation=last)])
    model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=last == "softmax"))
    (told,) = compiled_notices(model, TrainerSection(model="own:net", train_steps=1, path="keras"), [])[1:]
    does = (
        "has from_logits=True, and the model ends with softmax" if last else "is of probabilities, and the model ends"
    )
    assert told.startswith(f"the loss of own:net, SparseCategoricalCrossentropy, {does}")
