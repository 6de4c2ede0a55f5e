"""The copy of the best checkpoint: `keep_checkpoint_max` removes the original."""

from __future__ import annotations

import os
from typing import Optional

from tfx.dsl.io import fileio

FOLDER = "best"
# Not the name of a checkpoint that training goes on from.
_NAME = "best.ckpt-"
_INDEX, _DRAFT = ".index", ".tmp"


class Copies:
    """Copies of checkpoints in a folder of the training folder."""

    def __init__(self, training_dir: str) -> None:
        self._folder = os.path.join(training_dir, FOLDER)

    def path(self, step: int) -> str:
        """Returns where the copy of a step's checkpoint is, or would be."""
        return os.path.join(self._folder, f"{_NAME}{step}")

    def keep(self, checkpoint: str, step: int) -> bool:
        """Copies a checkpoint; its index last, which says that it is whole.

        Args:
            step: Of the checkpoint; an earlier copy is replaced.

        Returns:
            Whether it is there; not so if training has removed it meanwhile.
        """
        fileio.makedirs(self._folder)
        try:
            others = [path for path in fileio.glob(f"{checkpoint}.*") if not path.endswith(_INDEX)]
            for path in (*others, f"{checkpoint}{_INDEX}"):
                target = self.path(step) + path[len(checkpoint) :]
                fileio.copy(path, f"{target}{_DRAFT}", overwrite=True)
                fileio.rename(f"{target}{_DRAFT}", target, overwrite=True)
        except fileio.NotFoundError:
            return False
        return True

    def keep_only(self, step: Optional[int]) -> None:
        """Removes the copies of other steps; all if there is none to keep."""
        own = "" if step is None else f"{self.path(step)}."
        for path in fileio.glob(os.path.join(self._folder, f"{_NAME}*")):
            if not (own and path.startswith(own)) or path.endswith(_DRAFT):
                fileio.remove(path)


def is_there(checkpoint: str) -> bool:
    """Tells whether there is a checkpoint."""
    return fileio.exists(f"{checkpoint}{_INDEX}")
