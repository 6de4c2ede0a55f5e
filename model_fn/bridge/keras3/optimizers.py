"""A declared optimizer as source code of Keras 3, and the names of its slots there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfx_estimator.model_fn.bridge.optimizers import ROWS
from tfx_estimator.pipeline.base.errors import UserCodeError

# Ours -> Keras's.
_CLIPPING = {"clip_norm": "clipnorm", "global_clip_norm": "global_clipnorm", "clip_value": "clipvalue"}
_OWN = "momentum"
# The optimizer's name, which prefixes its variables' paths.
NAME = "optimizer"
STEP_PLACE = f"{NAME}/iteration"

_MOMENTUM = '''\
@keras.saving.register_keras_serializable("training")
class Momentum(keras.optimizers.Optimizer):
    """TensorFlow 1's: velocity = momentum * velocity + gradient, variable -= rate * velocity{nesterov_doc}.

    Keras's SGD multiplies the rate into its slot, so that steps differ when the rate changes.
    """

    def __init__(self, learning_rate, momentum, **options):
        super().__init__(learning_rate=learning_rate, **options)
        self.momentum = momentum

    def build(self, variables):
        if not self.built:
            super().build(variables)
            self.velocities = self.add_optimizer_variables(variables, "velocity")
{apply}
    def update_step(self, gradient, variable, learning_rate):
        velocity = self.velocities[self._get_variable_index(variable)]
        self.assign(velocity, self.momentum * velocity + gradient)
        self.assign_sub(variable, learning_rate * {step})

    def get_config(self):
        return {{**super().get_config(), "momentum": self.momentum}}
'''
_DERIVED = '''\
@keras.saving.register_keras_serializable("training")
class {kind}(keras.optimizers.{kind}):
    """{doc}"""
{methods}'''
_DENSE = "Sums the rows of an embedding's gradient first: Keras would update a repeated row twice."
_APPLY = """
    def apply(self, grads, trainable_variables=None):
        grads = [None if each is None else tf.convert_to_tensor(each) for each in grads]
        super().apply(grads, trainable_variables)
"""
_ENDS = "Skips the update when the rate is 0, by which Keras would divide."
_UPDATE = """
    def update_step(self, gradient, variable, learning_rate):
        update = super().update_step
        tf.cond(learning_rate > 0.0, lambda: update(gradient, variable, learning_rate), lambda: None)
"""
# Schedules that end at 0 unless another end is declared.
_FALLING = ("cosine", "linear", "polynomial")


def refuse_unknown(options: Mapping[str, Any]) -> None:
    """Refuses an optimizer that Keras 3 cannot continue."""
    clips = [name for name in _CLIPPING if options[name] is not None]
    wrong = ""
    if options["name"] not in ROWS:
        wrong = f"the optimizer {options['name']} keeps other slots in Keras 3"
    elif len(clips) > 1:
        wrong = f"an optimizer of Keras 3 clips in only one way, and {' and '.join(clips)} are declared"
    elif options["scaling"] != "none":
        wrong = f"trainer.optimizer.scaling: {options['scaling']} depends on the replicas; the source is for one"
    if wrong:
        raise UserCodeError(
            f"--to keras3: {wrong}",
            expected=f"one of {', '.join(ROWS)}, clipped in one way, without scaling",
            todo="convert to keras2",
        )


def optimizer_of(options: Mapping[str, Any], rate: str, sparse: bool) -> tuple[str, str]:
    """Returns an optimizer's class definition, empty for Keras's own, and the expression that constructs it."""
    name = options["name"]
    kind = ROWS[name].keras
    takes = [each.name for each in ROWS[name].options if each.name != "initial_accumulator_value"]
    given = {"learning_rate": rate, **{option: repr(options[option]) for option in takes}}
    if name == "adagrad":
        # Our slot contains epsilon from the start.
        given["epsilon"] = "0.0"
    if options["decoupled_weight_decay"] or name == "adamw":
        given["weight_decay"] = repr(options["decoupled_weight_decay"])
    given |= {theirs: repr(options[ours]) for ours, theirs in _CLIPPING.items() if options[ours] is not None}
    apply = _APPLY if sparse else ""
    if name == _OWN:
        nesterov = given.pop("nesterov") == "True"
        doc = ", by the gradient and the velocity to come" if nesterov else ""
        step = "(gradient + self.momentum * velocity)" if nesterov else "velocity"
        definition, made = _MOMENTUM.format(nesterov_doc=doc, apply=apply, step=step), kind
    elif name == "ftrl" and _reaches_zero(options):
        doc = f"{_ENDS[:-1]}; sums the rows of an embedding's gradient first." if sparse else _ENDS
        definition, made = _DERIVED.format(kind=kind, doc=doc, methods=apply + _UPDATE), kind
    elif sparse:
        definition, made = _DERIVED.format(kind=kind, doc=_DENSE, methods=apply), kind
    else:
        definition, made = "", f"keras.optimizers.{kind}"
    given["name"] = f'"{NAME}"'
    arguments = "".join(f"        {key}={value},\n" for key, value in given.items())
    return definition, f"{made}(\n{arguments}    )"


def _reaches_zero(options: Mapping[str, Any]) -> bool:
    """True if the rate is 0 at any step."""
    if options["schedule"] == "piecewise":
        return 0.0 in options["values"]
    return options["schedule"] in _FALLING and not options["end_learning_rate"]
