"""The proof that a converted training is the Estimator's."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from tfx_estimator.model_fn.bridge.differences import MOST, MOST_OF_STEPS
from tfx_estimator.model_fn.bridge.steps import STEPS
from tfx_estimator.pipeline.base.errors import NotEqualError
from tfx_estimator.pipeline.base.files import PROOF, write_json

_MOST_NAMES = 8


@dataclasses.dataclass(frozen=True)
class Proof:
    """The measured differences.

    Args:
        logits: Largest difference of the logits, relative to the largest logit if that exceeds 1, from the Estimator
            and, if there is one, from the exported model. Of the probabilities if a model_fn returns only those.
        classes: Examples whose predicted class differs.
        next_steps: Largest difference after more steps, by the kind of tensor, relative to what these changed; and of
            their losses.
        wrong: The same of each tensor that differs by more than rounding explains.
        rounding: Tensors that rounding alone moves, such as a bias before a normalisation: Adam divides a gradient by
            its own size. They are not compared.
        draws: Number of random operations in a step, on each side; they draw the same numbers for the proof.
        served: Weights that the Estimator serves with other values than it trains, such as moving averages.
        compared: The compared output of the model_fn: `logits`, `probabilities` or its operation's name.
        steps: Number of the compared steps; fewer if the data end.
    """

    examples: int
    logits: dict[str, float]
    classes: int
    next_steps: dict[str, float] = dataclasses.field(default_factory=dict)
    wrong: dict[str, float] = dataclasses.field(default_factory=dict)
    rounding: list[str] = dataclasses.field(default_factory=list)
    draws: dict[str, int] = dataclasses.field(default_factory=dict)
    served: list[str] = dataclasses.field(default_factory=list)
    compared: str = "logits"
    tensors: dict[str, int] = dataclasses.field(default_factory=dict)
    steps: int = STEPS

    @property
    def holds(self) -> bool:
        """True if all differences are small enough."""
        return not self.classes and not self.wrong and all(each <= MOST for each in self.logits.values())

    def to_dict(self) -> dict[str, Any]:
        """Returns the content of proof.json."""
        return {**dataclasses.asdict(self), "most": MOST, "holds": self.holds}

    def lines(self) -> list[str]:
        """Returns what the terminal shows."""
        found = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in self.tensors.items())
        rows = [(f"{self.compared}, {name}", value) for name, value in self.logits.items()]
        rows += [(f"{name} after {self.steps} more steps", value) for name, value in self.next_steps.items()]
        rounding = f"left out      {', '.join(self.rounding)}: rounding alone moves them"
        served = f"served        other values of {len(self.served)} weights than those trained, such as moving averages"
        served += "\n              model.keras has them; the training goes on without averaging"
        return [
            f"converted     {found}",
            f"compared      {self.examples} evaluation examples: {self.classes} with another class",
            *(
                f"{'largest difference' if not index else '':20}{name:40}{value:.3g}"
                for index, (name, value) in enumerate(rows)
            ),
            *([served] if self.served else []),
            *([rounding] if self.rounding else []),
        ]

    def more(self) -> Sequence[str]:
        """Returns further differences for the error."""
        return ()


def require(proof: Proof, folder: str, todo: str) -> None:
    """Writes proof.json, and raises an error unless the proof holds."""
    write_json(os.path.join(folder, PROOF), proof.to_dict())
    if proof.holds:
        return
    found = [f"{proof.compared} of the {name}: {value:.3g}" for name, value in proof.logits.items()]
    found += [f"predicted classes that differ: {proof.classes} of {proof.examples}"]
    largest = sorted(proof.wrong.items(), key=lambda each: -each[1])
    if largest:
        found.append(
            f"tensors that differ after {proof.steps} more steps, as a part of what these changed: {len(largest)}"
        )
        found += [f"  {name}: {value:.3g}" for name, value in largest[:_MOST_NAMES]]
    if len(set(proof.draws.values())) > 1:
        found += ["random operations in a step: " + ", ".join(f"{name} {count}" for name, count in proof.draws.items())]
    raise NotEqualError(
        "\n".join(["the Keras model differs from the Estimator: largest differences", *found, *proof.more()]),
        expected=f"at most {MOST:g}, {MOST_OF_STEPS:g} of the steps, and the same classes; so nothing was written",
        todo=todo,
    )
