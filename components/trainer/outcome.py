"""What a supervised training came to."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a supervised training came to.

    Args:
        first_step: Global step that training started from; not 0 where it resumed.
        last_step: Global step that it ended at.
        seconds: Wall time, start of the processes included.
        examples_per_second: While steps were done; 0 where the batch size is not known.
        metrics: Of the last evaluation, by name.
    """

    first_step: int
    last_step: int
    seconds: float
    examples_per_second: float
    metrics: dict[str, float]

    def properties(self) -> dict[str, float]:
        """Returns what the model run's artifact carries."""
        facts = {
            "first_step": float(self.first_step),
            "last_step": float(self.last_step),
            "train_seconds": self.seconds,
            "examples_per_second": self.examples_per_second,
        }
        return {**facts, **{f"eval_{name}": value for name, value in self.metrics.items()}}
