"""The Keras model of a declaration, built and compiled."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import tensorflow as tf

from tfx_estimator.components.trainer import seeds
from tfx_estimator.components.trainer.task.user_code import call_network, find_function, is_model_fn
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.parallel.division import find_division
from tfx_estimator.model_fn.step.compiled_classifier import CompiledClassifier
from tfx_estimator.model_fn.step.head import OF_CLASSES, Head
from tfx_estimator.model_fn.step.kept_classifier import KeptClassifier, is_kept
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
from tfx_estimator.model_fn.step.precision import FLOAT16, LossScale, require_declared, stored, use
from tfx_estimator.model_fn.table_networks import TableNetwork
from tfx_estimator.model_fn.user_models.checks import check_compiled, refuse_own_methods, refuse_step_options
from tfx_estimator.model_fn.user_models.freezing import freeze
from tfx_estimator.model_fn.user_models.keras_model import (
    build,
    example,
    is_compiled,
    require_scores,
    require_trainable,
)
from tfx_estimator.model_fn.user_models.probabilities import assumed, mismatch, refuse_probabilities
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.known import TABLE_NAMES
from tfx_estimator.pipeline.config.trainer import TrainerSection

Classifier = Union[KerasClassifier, CompiledClassifier, KeptClassifier]
# Options of the built-in loss and optimizer.
_BUILT_IN = ("trainer.optimizer", "trainer.label_smoothing", "trainer.class_weights")


@dataclass(frozen=True)
class ModelMaker:
    """Makes the model of a declaration: for training, for evaluation, for serving.

    Args:
        spec: Feature spec of the model's features.
        trains: True if the model is trained; otherwise it computes in float32, regardless of `trainer.precision`.
        function: Makes the network, in place of the declared one.
        head: The task.
        make_optimizer: Makes the declared optimizer, of a network that is not compiled.
        tell: Called with the number of frozen variables, in words.
    """

    section: TrainerSection
    num_classes: int
    spec: Mapping[str, Any]
    trains: bool = True
    function: Optional[Callable] = None
    head: Head = OF_CLASSES
    make_optimizer: Callable[..., DeclaredOptimizer] = DeclaredOptimizer
    tell: Optional[Callable[[str], None]] = None

    @classmethod
    def of(
        cls, section: TrainerSection, spec: Mapping[str, Any], params: Mapping[str, Any], trains: bool = True
    ) -> ModelMaker:
        """Returns the maker of the declared model; `params`: `num_classes`, and of a table those of `table_params`."""
        given: dict[str, Any] = {"head": Head.of(params)}
        if section.model in TABLE_NAMES["trainer.model"]:
            built_in = TableNetwork(section.model, spec, params)
            given |= {"function": built_in.network, "make_optimizer": built_in.optimizer}
        return cls(section, params["num_classes"], spec, trains, **given)

    def make(self) -> Classifier:
        """Builds the model with all its variables; without an optimizer, unless the user's model is compiled."""
        section = self.section
        seeds.begin(section)
        function = self.function or find_function(section.model or "")
        if is_model_fn(function):
            raise UserCodeError(
                f"trainer.model: {section.model!r} is a whole Estimator model_fn",
                expected=f"a function that returns a tf.keras.Model, with trainer.path: {section.path}",
                todo="set trainer.path: estimator, or name a network function",
            )
        use(section.precision, self.trains)
        division = None
        if section.is_divided:
            features = {name: tf.type_spec_from_value(each) for name, each in example(self.spec).items()}
            division = find_division(section, lambda: self._make_network(function), features)
            seeds.begin(section)
        with division.used() if division else contextlib.nullcontext():
            network = self._make_network(function)
        if is_kept(network):
            refuse_step_options(section, "is a kept training")
            return KeptClassifier(network)
        # Built before a checkpoint is read, so that every variable exists to be restored.
        with division.used(network) if division else contextlib.nullcontext():
            outputs = build(network, self.spec)
            if not is_compiled(network):
                require_scores(outputs, self.num_classes)
                refuse_probabilities(network, outputs)
        if self.trains and section.freeze:
            frozen = freeze(network, section.freeze)
            if self.tell:
                self.tell(frozen)
        if not is_compiled(network) or type(network).train_step is tf.keras.Model.train_step:
            require_trainable(network)
        if is_compiled(network):
            refuse_step_options(section, "returns a compiled model")
            check_compiled(network, section.model or "", outputs)
            return CompiledClassifier(network, section, self.num_classes, self.head.weight)
        if division:
            division.check(network)
        return KerasClassifier(network, section, division, self.head)

    def _make_network(self, function: Callable) -> tf.keras.Model:
        """Calls the user's function."""
        network = call_network(function, self.num_classes, self.section.params)
        if isinstance(network, tf.keras.Model):
            refuse_own_methods(network)
            if not is_compiled(network):
                require_declared(self.section.precision, network, self.trains)
            return network
        raise UserCodeError(
            f"trainer.model: {self.section.model!r} returned {type(network).__name__}",
            expected="a tf.keras.Model",
            todo="return the model from the function",
        )

    def make_compiled(self, steps_per_execution: int) -> Classifier:
        """Builds and compiles the model, with all its variables and those of its optimizer."""
        model = self.make()
        if isinstance(model, (CompiledClassifier, KeptClassifier)):
            optimizer = model.own.optimizer
        else:
            declared = self.section
            scale = LossScale() if declared.precision == FLOAT16 else None
            compression = declared.distribution.train.gradient_compression
            optimizer = self.make_optimizer(declared.optimizer, declared.train_steps or 1, compression, scale)
        model.compile(optimizer=optimizer, steps_per_execution=steps_per_execution)
        if not isinstance(model, KeptClassifier):
            _make_slots(optimizer, stored(model.trainable_variables))
        return model


def _make_slots(optimizer: Any, variables: list[tf.Variable]) -> None:
    """Creates the optimizer's slots before the first step, so that every checkpoint is complete."""
    if isinstance(optimizer, tf.keras.optimizers.legacy.Optimizer):
        optimizer._create_all_weights(variables)
    else:
        optimizer.build(variables)


def compiled_notices(model: tf.keras.Model, section: TrainerSection, declared: Sequence[str]) -> list[str]:
    """Returns notices: the compiled model's own loss and optimizer, and the declared paths that have no effect."""
    if is_kept(model):
        notices = [f"{section.model} was kept at step {model.kept_step}: its own optimizer and loss go on"]
    else:
        notices = _loss_notices(model, section)
    unused = [path for path in declared if any(path == each or path.startswith(f"{each}.") for each in _BUILT_IN)]
    if unused:
        verb = "has" if len(unused) == 1 else "have"
        notices.append(f"{', '.join(unused)} {verb} no effect: the compiled model of {section.model} has its own")
    return notices


def _loss_notices(model: tf.keras.Model, section: TrainerSection) -> list[str]:
    loss = model.loss if isinstance(model.loss, str) else getattr(model.loss, "__name__", type(model.loss).__name__)
    own = f"optimizer, {type(model.optimizer).__name__}, and loss, {loss}"
    notices = [f"{section.model} returns a compiled model: it is trained by its own {own}"]
    if taken := assumed(model):
        notices.append(
            f"the loss of {section.model}, {loss}, does not tell whether the model's outputs are logits or "
            f"probabilities: {taken}. A loss of tf.keras.losses with from_logits=… does"
        )
    if wrong := mismatch(model):
        notices.append(f"the loss of {section.model}, {loss}, {wrong}")
    return notices
