"""An observer that records its calls."""

from __future__ import annotations

from collections.abc import Sequence

from tfx_estimator.components.trainer.observers import Observer


class Noting(Observer):
    """Records each call: its name, the step, and the number of earlier checkpoints; ends executions at edges."""

    def __init__(self, *edges: int) -> None:
        self._edges = edges
        self.saves: Sequence[int] = ()
        self.called: list[tuple[str, int, int]] = []

    @property
    def edges(self) -> Sequence[int]:
        return self._edges


def _noting(name: str):
    return lambda self, step, values=None: self.called.append((name, step, len(self.saves)))


for _name in ("begin", "before_step", "after_step", "before_save", "end"):
    setattr(Noting, _name, _noting(_name))
