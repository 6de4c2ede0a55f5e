"""Pipeline parallelism: a training step whose microbatches pass through stages, each on its own device.

A stage runs one pass at a time, in a fixed order (1F1B): after as many forward passes as there are stages after it, it
alternates one forward and one backward pass. So it holds the activations of that many microbatches at most, not of all,
and idles no longer than if all forward passes ran first.

Source: Narayanan et al., PipeDream, 2019, https://arxiv.org/abs/1806.03377; Huang et al., GPipe, 2018,
https://arxiv.org/abs/1811.06965.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

import tensorflow as tf

from tfx_estimator.model_fn.layers import DropoutKeys
from tfx_estimator.model_fn.parallel.stages import Link
from tfx_estimator.model_fn.step.head import as_float
from tfx_estimator.model_fn.step.objective import Objective, gradients_of
from tfx_estimator.model_fn.step.parts import Computed, Features, Part, add, cut
from tfx_estimator.model_fn.user_models.keras_model import identifying_feature
from tfx_estimator.pipeline.config.parallel import STAGE_SCOPE


@dataclass(frozen=True)
class Stage:
    """Layers that follow one another, on one device.

    Args:
        variables: The trainable ones.
    """

    device: str
    links: Sequence[Link]
    variables: Sequence[tf.Variable]

    def losses(self) -> list[tf.Tensor]:
        """Returns the losses that Keras lists after the layers were called: of weights and of outputs."""
        return [each for link in self.links for each in link.layer.losses]


class Work(NamedTuple):
    """One pass of a stage: a microbatch, forward or backward."""

    stage: int
    part: int
    back: bool


def schedule(stages: int, parts: int) -> list[Work]:
    """Returns all passes of a step, each after those it depends on, and in each stage's own order."""
    queues = []
    for stage in range(stages):
        ahead = min(stages - 1 - stage, parts)
        forward = [Work(stage, part, False) for part in range(parts)]
        back = [Work(stage, part, True) for part in range(parts)]
        queue = forward[:ahead]
        for number in range(parts - ahead):
            queue += [forward[ahead + number], back[number]]
        queues.append([*queue, *back[parts - ahead :]])
    order: list[Work] = []
    done: set[Work] = set()
    while any(queues):
        for queue in queues:
            while queue and _needs(queue[0], stages) <= done:
                order.append(queue.pop(0))
                done.add(order[-1])
    return order


def _needs(work: Work, stages: int) -> set[Work]:
    if not work.back:
        return {Work(work.stage - 1, work.part, False)} if work.stage else set()
    later = {Work(work.stage + 1, work.part, True)} if work.stage + 1 < stages else set()
    return {Work(work.stage, work.part, False), *later}


class _Ahead(NamedTuple):
    """A stage's forward pass that awaits its backward pass: inputs, outputs, and share of the loss."""

    inputs: tf.Tensor
    outputs: tf.Tensor
    loss: tf.Tensor
    hits: tf.Tensor


@dataclass(frozen=True)
class Pipeline:
    """Computes the loss and the gradients of a batch in stages.

    Args:
        variables: The trainable ones of all stages.
        parts: Microbatches of a batch; of equal size, to within one example.
        feed: Returns the first layer's input, from a batch's features.
        seed: Seed of `StatelessDropout`.
        step: The global step, for `StatelessDropout`.
    """

    stages: Sequence[Stage]
    variables: Sequence[tf.Variable]
    parts: int
    feed: Callable[[Features], tf.Tensor]
    objective: Objective
    seed: int
    step: tf.Tensor

    def compute(self, batch: Part) -> Computed:
        """Computes a batch: the sums over all its microbatches, with a gradient for each of `variables`."""
        option = "trainer.pipeline_parallel.microbatches"
        cuts = [cut(batch, number, self.parts, option) for number in range(self.parts)]
        keys = [DropoutKeys(identifying_feature(part.features), self.seed, self.step) for part in cuts]
        seen = [loss for stage in self.stages for loss in stage.losses()]
        totals: list[Optional[Computed]] = [None] * len(self.stages)
        # The tensors of each stage's latest pass, on which its next pass depends.
        last: list[Sequence[Any]] = [()] * len(self.stages)
        ahead: dict[tuple[int, int], _Ahead] = {}
        # The gradients of each stage's outputs.
        returned: dict[tuple[int, int], Any] = {}
        for number, index, back in schedule(len(self.stages), self.parts):
            stage, here = self.stages[number], (number, index)
            with (
                tf.device(stage.device),
                tf.control_dependencies(last[number]),
                tf.name_scope(f"{STAGE_SCOPE}{number}"),
            ):
                if back:
                    given, computed = self._back(number, ahead.pop(here), returned.pop(here, None))
                    if number:
                        returned[number - 1, index] = given
                    totals[number] = total = add(totals[number], computed)
                    last[number] = [*total.operations, *([] if given is None else [given])]
                    continue
                inputs = ahead[number - 1, index].outputs if number else self.feed(cuts[index].features)
                with keys[index].used():
                    outputs = inputs
                    for link in stage.links:
                        outputs = link(outputs, training=True)
                # In an Estimator's graph Keras lists the losses of every call.
                own = [each for each in stage.losses() if not any(each is earlier for earlier in seen)]
                seen += own
                loss, hits = self._judge(cuts[index], number, outputs, own)
                ahead[here] = _Ahead(inputs, outputs, loss, hits)
                last[number] = [outputs, loss, hits]
        found: dict[int, Any] = {}
        for stage, whole in zip(self.stages, totals):
            assert whole is not None
            found.update(zip(map(id, stage.variables), whole.gradients))
        loss, hits = (tf.add_n([getattr(each, name) for each in totals]) for name in ("loss", "hits"))
        return Computed(loss, hits, [found.get(id(variable)) for variable in self.variables])

    def _judge(
        self, part: Part, number: int, outputs: tf.Tensor, own: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns a stage's share of a microbatch's loss, and the number of correct predictions (last stage only)."""
        logits = as_float(outputs) if number == len(self.stages) - 1 else None
        loss = self.objective.loss(part, logits, own, self.stages[number].variables)
        hits = tf.zeros([], loss.dtype) if logits is None else self.objective.head.hits(logits, part.labels, loss.dtype)
        return loss, hits

    def _back(self, number: int, ahead: _Ahead, gradient: Any) -> tuple[Any, Computed]:
        """Returns the gradient of a stage's inputs, and the microbatch's contribution."""
        stage = self.stages[number]
        # The first stage's inputs are images, which need no gradient.
        inputs = [ahead.inputs] if number else []
        outputs, gradients = [self.objective.scaled(ahead.loss)], [None]
        if gradient is not None:
            outputs, gradients = [*outputs, ahead.outputs], [*gradients, gradient]
        found = gradients_of(outputs, [*inputs, *stage.variables], of_outputs=gradients, stop=inputs)
        given = found[0] if inputs else None
        if isinstance(given, tf.IndexedSlices):
            given = tf.convert_to_tensor(given)
        return given, Computed(ahead.loss, ahead.hits, found[len(inputs) :])
