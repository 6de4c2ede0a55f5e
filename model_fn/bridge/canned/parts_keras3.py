"""Source for a network.py of Keras 3, copied verbatim: replacements of namesakes in `parts`, a layer, and optimizers.

Keras 3's own optimizers do not sum repeated rows of a gradient, and have other slots. These use the same TensorFlow
operations as the Estimator's.
"""

from __future__ import annotations

import tensorflow as tf

from tfx_estimator.model_fn.bridge.canned.parts import weights_of


class Steps(tf.keras.optimizers.Optimizer):
    """Updates by one TensorFlow operation, which changes only the batch's rows of an embedding.

    Attributes:
        operation: Its name.
        kept: Slot names and initial values, which are numbers or names of options, by the operation's argument.
        defaults: Default options, without the learning rate.
    """

    operation = ""
    kept: dict = {}
    defaults: dict = {}

    def __init__(self, learning_rate, **options):
        super().__init__(learning_rate)
        self.options = {**self.defaults, **options}

    def build(self, variables):
        if not self.built:
            super().build(variables)
            self.slots = {}
            for name, begin in self.kept.values():
                first = tf.keras.initializers.Constant(self.options.get(begin, begin))
                self.slots[name] = [
                    self.add_variable_from_reference(each, name=name, initializer=first) for each in variables
                ]

    def arguments(self, rate):
        """Returns the operation's arguments other than slots and gradient."""
        return {"lr": rate, **self.options}

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        given = {key: self.slots[name][index].value.handle for key, (name, _) in self.kept.items()}
        given |= {"var": variable.handle, **self.arguments(tf.cast(learning_rate, tf.float32))}
        if not isinstance(gradient, tf.IndexedSlices):
            return getattr(tf.raw_ops, f"ResourceApply{self.operation}")(grad=gradient, **given)
        # The operation would update a repeated row twice.
        rows, places = tf.unique(gradient.indices)
        total = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
        return getattr(tf.raw_ops, f"ResourceSparseApply{self.operation}")(grad=total, indices=rows, **given)

    def get_config(self):
        return {**super().get_config(), **self.options}


class SGD(Steps):
    """Without momentum."""

    def update_step(self, gradient, variable, learning_rate):
        variable.assign_sub(learning_rate * tf.convert_to_tensor(gradient))


class KerasMomentum(Steps):
    """SGD of Keras 2, whose slot contains the rate."""

    operation, kept = "KerasMomentum", {"accum": ("momentum", 0.0)}

    def arguments(self, rate):
        nesterov = self.options.get("nesterov", False)
        return {"lr": rate, "momentum": self.options["momentum"], "use_nesterov": nesterov}


class Momentum(KerasMomentum):
    """The momentum of `tf.compat.v1.train`, whose slot is the sum of gradients."""

    operation = "Momentum"


class Adagrad(Steps):
    """Adagrad with an explicit epsilon."""

    operation, kept = "AdagradV2", {"accum": ("accumulator", "initial_accumulator_value")}
    defaults = {"initial_accumulator_value": 0.1, "epsilon": 1e-7}

    def arguments(self, rate):
        return {"lr": rate, "epsilon": self.options["epsilon"]}


class ProximalAdagrad(Steps):
    """Adagrad that shrinks the weights."""

    operation, kept = "ProximalAdagrad", {"accum": ("accumulator", "initial_accumulator_value")}
    defaults = {"initial_accumulator_value": 0.1, "l1_regularization_strength": 0.0, "l2_regularization_strength": 0.0}

    def arguments(self, rate):
        return {"lr": rate, **{name: self.options[f"{name}_regularization_strength"] for name in ("l1", "l2")}}


class Adam(Steps):
    """Adam that updates all rows of an embedding, also those without a gradient."""

    operation, kept = "Adam", {"m": ("m", 0.0), "v": ("v", 0.0)}

    def arguments(self, rate):
        step = tf.cast(self.iterations + 1, tf.float32)
        betas = {name: self.options[f"beta_{name[-1]}"] for name in ("beta1", "beta2")}
        powers = {f"{name}_power": tf.pow(beta, step) for name, beta in betas.items()}
        return {"lr": rate, "epsilon": self.options["epsilon"], **betas, **powers}

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(tf.convert_to_tensor(gradient), variable, learning_rate)


class Ftrl(Steps):
    """Follows the regularized leader."""

    operation = "FtrlV2"
    kept = {"accum": ("accumulator", "initial_accumulator_value"), "linear": ("linear", 0.0)}
    defaults = {"learning_rate_power": -0.5, "initial_accumulator_value": 0.1, "beta": 0.0}
    defaults |= dict.fromkeys((f"{name}_regularization_strength" for name in ("l1", "l2", "l2_shrinkage")), 0.0)

    def arguments(self, rate):
        names = {"lr_power": "learning_rate_power", "l2_shrinkage": "l2_shrinkage_regularization_strength"}
        given = {key: self.options[name] for key, name in names.items()}
        l2 = self.options["l2_regularization_strength"] + self.options["beta"] / (2.0 * rate)
        return {"lr": rate, "l1": self.options["l1_regularization_strength"], "l2": l2, **given}


class RMSprop(Steps):
    """RMSprop with momentum, which may be 0."""

    operation, kept = "RMSProp", {"ms": ("rms", 0.0), "mom": ("momentum", 0.0)}

    def arguments(self, rate):
        return {"lr": rate, **{name: self.options[name] for name in ("rho", "momentum", "epsilon")}}


class CenteredRMSprop(RMSprop):
    """RMSprop centered by the mean gradient."""

    operation, kept = "CenteredRMSProp", {"mg": ("mg", 0.0), **RMSprop.kept}


class PlainRMSprop(Steps):
    """RMSprop of Keras 2 without momentum, whose epsilon is outside of the square root."""

    kept = {"ms": ("rms", 0.0)}

    def update_step(self, gradient, variable, learning_rate):
        gradient, rho = tf.convert_to_tensor(gradient), self.options["rho"]
        slots = {name: each[self._get_variable_index(variable)] for name, each in self.slots.items()}
        for name, value in {"rms": tf.square(gradient), "mg": gradient}.items():
            if name in slots:
                slots[name].assign(rho * slots[name].value + (1.0 - rho) * value)
        variance = slots["rms"].value - tf.square(slots["mg"].value) if "mg" in slots else slots["rms"].value
        variable.assign_sub(learning_rate * gradient / (tf.sqrt(variance) + self.options["epsilon"]))


class CenteredPlainRMSprop(PlainRMSprop):
    """PlainRMSprop centered by the mean gradient."""

    kept = {"mg": ("mg", 0.0), **PlainRMSprop.kept}


@tf.keras.utils.register_keras_serializable("network")
class BatchNormalization(tf.keras.layers.BatchNormalization):
    """Normalises images in training by TensorFlow's fused operation, like Keras 2 and the Estimator.

    Keras 3 uses several operations, and averages the biased variance of a batch, which is smaller.
    """

    def call(self, inputs, training=None, mask=None):
        if not (training and self.trainable) or len(inputs.shape) != 4 or self.axis not in (-1, 3):
            return super().call(inputs, training=training, mask=mask)
        gamma = self.gamma if self.scale else tf.ones_like(self.moving_mean)
        beta = self.beta if self.center else tf.zeros_like(self.moving_mean)
        outputs, *moments = tf.compat.v1.nn.fused_batch_norm(inputs, gamma, beta, epsilon=self.epsilon)
        for average, moment in zip((self.moving_mean, self.moving_variance), moments):
            average.assign_sub((average - moment) * (1.0 - self.momentum))
        return outputs


def places(model):
    """Returns a compiled model's variables: LAYER/VARIABLE, and LAYER/VARIABLE/SLOT of an optimizer."""
    found = weights_of(model)
    names = {id(variable): name for name, variable in found.items()}
    for optimizer, variables in model.trained():
        optimizer.build(variables)
        for name, slots in optimizer.slots.items():
            found |= {f"{names[id(variable)]}/{name}": slot for variable, slot in zip(variables, slots)}
    return found
