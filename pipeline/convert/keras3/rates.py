"""A declared learning rate as source code."""

from __future__ import annotations

import tensorflow as tf

from tfx_estimator.model_fn.bridge.canned.text import indented
from tfx_estimator.model_fn.bridge.canned.tracing import lines_of
from tfx_estimator.model_fn.optim.schedules import learning_rate
from tfx_estimator.pipeline.config.optimizer import OF_SCHEDULES, Optimizer

_CLASS = '''\
@keras.saving.register_keras_serializable("training")
class LearningRate(keras.optimizers.schedules.LearningRateSchedule):
    """{doc}."""

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
{lines}

    def get_config(self):
        return {{}}
'''


def rate_of(section: Optimizer, train_steps: int) -> tuple[str, str]:
    """Returns a learning rate's class definition, empty for a constant rate, and the expression for the rate."""
    if section.schedule == "constant" and not section.warmup_steps:
        return "", repr(section.learning_rate)
    options = {name: value for name, value in section.resolved().items() if name in OF_SCHEDULES and value}
    shown = {"learning_rate": section.learning_rate, "warmup_steps": section.warmup_steps, **options}
    doc = f"{section.schedule}, {', '.join(f'{name} {value}' for name, value in shown.items() if value)}"
    step = {"step": tf.TensorSpec([], tf.float32)}
    lines = lines_of("the schedule", lambda step: learning_rate(section, train_steps, step), step)
    return _CLASS.format(doc=doc, lines=indented(lines, " " * 8)), "LearningRate()"
