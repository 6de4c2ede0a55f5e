"""Has evaluations while training decide what is exported, and when training is over: `trainer.best` says what."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor

from tfx_estimator.components.trainer.best.keeper import Keeper
from tfx_estimator.components.trainer.keras.evaluation import require_number
from tfx_estimator.components.trainer.keras.saver import latest_checkpoint, step_of


class Deciding:
    """The evaluations of one task.

    Args:
        measure: Evaluates a checkpoint, and returns its metrics.
    """

    def __init__(self, keeper: Keeper, measure: Callable[[str], dict[str, float]], folder: str) -> None:
        self._keeper = keeper
        self._measure = measure
        self._folder = folder

    @property
    def stops(self) -> bool:
        """Is training over before its last step."""
        return self._keeper.stops

    def check_metrics(self, reported: Callable[[], Collection[str]]) -> None:
        """Checks what is declared before anything is trained: see `Keeper.check_metrics`."""
        self._keeper.check_metrics(reported)

    def evaluate(self, checkpoint: str) -> dict[str, float]:
        """Evaluates a checkpoint."""
        metrics = self._measure(checkpoint)
        self._keeper.evaluated(step_of(checkpoint), metrics, checkpoint)
        return metrics

    def ends(self) -> bool:
        """Evaluates the checkpoint that was just saved; tells whether training is over."""
        # In a thread of its own: `fit` calls from inside the scope of its strategy, which no other may enter.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self.evaluate, latest_checkpoint(self._folder) or "").result()
        return self.stops

    def go_on_from(self, step: int) -> None:
        """Evaluates the checkpoint that training goes on from, if a process that was ended had still to do so.

        Args:
            step: Its global step; 0 if there is none.
        """
        self._keeper.go_on_from(step)
        if not self._keeper.knows(step):
            self.evaluate(latest_checkpoint(self._folder) or "")

    def choose(self, last: str) -> str:
        """Returns the path of the checkpoint to export.

        Args:
            last: Path of the last one; it is evaluated, unless it was.

        Raises:
            TrainingError: The loss of what would be exported is not a number.
        """
        step = step_of(last)
        if not self._keeper.knows(step):
            self.evaluate(last)
        chosen = self._keeper.choose(last, step)
        require_number(chosen.metrics, chosen.checkpoint)
        return chosen.checkpoint
