"""A declared learning-rate schedule as source code, by the formulas of `model_fn.optim.schedules`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CLASS = '''\
@keras.saving.register_keras_serializable("training")
class LearningRate(keras.optimizers.schedules.LearningRateSchedule):
    """{doc}"""

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
{lines}
        return rate

    def get_config(self):
        return {{}}
'''


def rate_of(options: Mapping[str, Any], train_steps: int) -> tuple[str, str]:
    """Returns a learning rate's class definition, empty for a constant rate, and the expression for the rate."""
    warmup, schedule = options["warmup_steps"], options["schedule"]
    if schedule == "constant" and not warmup:
        return "", repr(options["learning_rate"])
    lines, doc = _schedule(options, train_steps)
    if warmup:
        lines.append(f"rate *= tf.minimum((step + 1.0) / {warmup}, 1.0)")
        doc = f"{doc}, after a linear warm-up of {warmup} steps"
    text = _CLASS.format(doc=f"{doc}.", lines="\n".join(f"        {line}" for line in lines))
    return text, "LearningRate()"


def _schedule(options: Mapping[str, Any], train_steps: int) -> tuple[list[str], str]:
    """Returns the lines that compute `rate`, and their description."""
    schedule, peak, warmup = options["schedule"], options["learning_rate"], options["warmup_steps"]
    steps = options["decay_steps"] or max(train_steps - warmup, 1)
    end = (options["end_learning_rate"] or 0.0) / peak
    since = f"(step - {warmup})" if warmup else "step"
    progress = f"progress = tf.clip_by_value({since} / {steps}, 0.0, 1.0)"
    if schedule == "cosine":
        between = f"({end!r} + {1.0 - end!r} * 0.5 * (1.0 + tf.cos(math.pi * progress)))"
        falls = between if end else "0.5 * (1.0 + tf.cos(math.pi * progress))"
        return [
            progress,
            f"rate = {peak!r} * {falls}",
        ], f"Half a cosine from {peak:g} to {end * peak:g}, in {steps} steps"
    if schedule in ("linear", "polynomial"):
        power = options["power"] or 1.0
        falls = f"{1.0 - end!r} * (1.0 - progress) ** {power!r} + {end!r}"
        return [progress, f"rate = {peak!r} * ({falls})"], f"From {peak:g} to {end * peak:g}, in {steps} steps"
    if schedule in ("exponential", "inverse_time"):
        factor = options["decay_rate"]
        periods = f"tf.maximum({since}, 0.0) / {steps}"
        periods = f"tf.floor({periods})" if options["staircase"] else periods
        falls = f"tf.pow({factor!r}, periods)" if schedule == "exponential" else f"1.0 / (1.0 + {factor!r} * periods)"
        doc = f"From {peak:g}, by {factor:g} in each {steps} steps, {schedule.replace('_', ' ')}"
        return [f"periods = {periods}", f"rate = {peak!r} * {falls}"], doc
    if schedule == "piecewise":
        boundaries, values = ([float(each) for each in options[name]] for name in ("boundaries", "values"))
        passed = f"passed = tf.reduce_sum(tf.cast(step > tf.constant({boundaries}), tf.int32))"
        return [passed, f"rate = tf.gather(tf.constant({values}), passed)"], "Another rate after each boundary"
    if schedule == "one_cycle":
        lines = [
            f"part = tf.clip_by_value(step / {train_steps}, 0.0, 1.0)",
            "rising = 1.0 + (1 / 25 - 1.0) * 0.5 * (1.0 + tf.cos(math.pi * part / 0.3))",
            "last = 1 / 250_000",
            "falling = last + (1.0 - last) * 0.5 * (1.0 + tf.cos(math.pi * (part - 0.3) / 0.7))",
            f"rate = {peak!r} * tf.where(part < 0.3, rising, falling)",
        ]
        return lines, f"Rises to {peak:g} for 30 % of {train_steps} steps, and falls to a 250,000th of that"
    return [f"rate = tf.constant({peak!r})"], f"Constant, {peak:g}"
