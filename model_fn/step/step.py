"""A training step of a network up to its gradients: the same in an Estimator's graph, `fit` and a custom loop."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.layers import dropout_keys
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.parallel.division import Division
from tfx_estimator.model_fn.step.assignments import assignments, automatic_dependencies, changes_since
from tfx_estimator.model_fn.step.compiling import Compiler, takes_step
from tfx_estimator.model_fn.step.head import as_float
from tfx_estimator.model_fn.step.objective import Objective, gradients_of
from tfx_estimator.model_fn.step.parts import AT_ONCE, IN_TURN, Computed, Part, in_parts, refuse_state
from tfx_estimator.model_fn.step.precision import stored
from tfx_estimator.model_fn.unconverted import unconverted
from tfx_estimator.model_fn.user_models.keras_model import identifying_feature, inputs_of, require_scores


@unconverted
def logits_of(
    network: tf.keras.Model,
    features: dict[str, tf.Tensor],
    training: bool,
    division: Optional[Division] = None,
    num_classes: int = 0,
) -> tf.Tensor:
    """Calls a network.

    Args:
        features: By name: `image`, or the features that the network's inputs are named after.
        num_classes: Checks the number of outputs against it; 0 skips the check.

    Returns:
        float32, or float64 if the network's outputs are, [batch, classes].
    """
    with division.used(network) if division else contextlib.nullcontext():
        outputs = network(inputs_of(network, features), training=training)
    require_scores(outputs, num_classes)
    return as_float(outputs)


@dataclasses.dataclass(frozen=True)
class Step:
    """Computes a batch, whole or in parts, on one device or several, compiled or not.

    Args:
        optimizer: Its `iterations` count the steps.
        call: Returns the logits of features, in training.
        seed: Seed of `StatelessDropout`.
        in_turn: Number of parts of a batch that are computed one after the other.
        at_once: Number of parts of each of these that are computed in parallel.
        xla: Compile it by XLA.
    """

    network: tf.keras.Model
    optimizer: DeclaredOptimizer
    objective: Objective
    call: Callable[[dict[str, tf.Tensor]], tf.Tensor]
    seed: int
    division: Optional[Division]
    in_turn: int
    at_once: int
    xla: bool
    compiler: Compiler

    def run(self, train: Callable[..., Any], *batch: Any) -> Any:
        """Calls the training function with a batch, compiled if `is_compiled_whole`."""
        return (self.compiler.step(train) if self.is_compiled_whole else train)(*batch)

    @property
    def is_compiled_whole(self) -> bool:
        """True if the step is compiled with its optimizer; read in the context of the training strategy."""
        return self.xla and takes_step(self.in_turn)

    @property
    def variables(self) -> list[tf.Variable]:
        """The trained variables."""
        return stored(self.network.trainable_variables)

    def pairs(self, computed: Computed) -> Iterable[tuple[Any, tf.Variable]]:
        """Returns the unscaled gradients with their variables, for the optimizer."""
        return zip(self.objective.unscaled(computed.gradients), self.variables)

    def compute(self, features: dict[str, tf.Tensor], labels: tf.Tensor) -> Computed:
        """Computes a batch."""
        network, whole = self.network, Part(features, labels)
        # In an Estimator's graph Keras lists the losses of every call, also those of the placeholder, never fed, that a
        # functional network was created with. An unbuilt network has none yet; its losses of weights come later.
        in_graph = not tf.compat.v1.executing_eagerly_outside_functions()
        seen = list(network.losses) if in_graph and network.built else []
        # Created first, so that `assignments` does not find it.
        _ = self.optimizer.iterations
        with automatic_dependencies() as begin:
            if self.division and self.division.stages:
                pipeline = self.division.pipeline(network, self.objective, self.seed, self.optimizer.iterations)
                computed = pipeline.compute(whole)
            else:
                compute = in_parts(lambda part: self._compute_part(part, seen), self.at_once, AT_ONCE)
                if self.xla and not self.is_compiled_whole:
                    compute = self.compiler.part(compute)
                computed = in_parts(compute, self.in_turn, IN_TURN)(whole)
        # Assignments of layers that update a state in `call`.
        found = assignments(begin, network.weights, known=computed.updates)
        if self.at_once > 1 and (found or computed.updates or changes_since(begin)):
            raise refuse_state(self.at_once, network)
        return dataclasses.replace(computed, updates=[*computed.updates, *found])

    def _compute_part(self, part: Part, seen: list[tf.Tensor]) -> Computed:
        network = self.network
        # Graph mode: tf.gradients; GradientTape has no gate_gradients and loses device colocation.
        with tf.GradientTape() if tf.executing_eagerly() else contextlib.nullcontext() as tape:
            with dropout_keys(identifying_feature(part.features), self.seed, self.optimizer.iterations):
                logits = self.call(part.features)
            own = [each for each in network.losses if not any(each is other for other in seen)]
            seen += own
            loss = self.objective.loss(part, logits, own, network.trainable_variables)
            differentiated = self.objective.scaled(loss)
        variables = self.variables
        gradients = tape.gradient(differentiated, variables) if tape else gradients_of(differentiated, variables)
        updates = []
        if not tf.compat.v1.executing_eagerly_outside_functions():
            # Updates of batch normalisation; a tf.function runs them automatically.
            updates = network.get_updates_for(None) + network.get_updates_for(inputs_of(network, part.features))
        hits = self.objective.head.hits(logits, part.labels, loss.dtype)
        return Computed(loss, hits, gradients, updates)
