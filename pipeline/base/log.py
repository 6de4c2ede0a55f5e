"""The project's own log. Standard library only: training tasks start with it."""

from __future__ import annotations

import logging

# Below absl's logger, through which TFX's components log: whoever sees those sees these, at the same verbosity and by
# the same handlers; below the root, Python's own default would hide all that is no warning.
ROOT = "absl.tfx_estimator"
# `extra` of a message that stays on the terminal, where others are but a moving line.
STAYS = {"stays": True}


def get_logger(part: str) -> logging.Logger:
    """Returns the logger of a part of the project, `trainer` for example."""
    return logging.getLogger(f"{ROOT}.{part}")
