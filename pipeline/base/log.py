"""The project's own log. Standard library only: training tasks start with it."""

from __future__ import annotations

import logging

# A child of absl's logger, which TFX's components use: the same verbosity and handlers apply. As a child of the root
# logger, Python's default level would hide all but warnings.
ROOT = "absl.tfx_estimator"
# `extra` of a message that stays on the terminal, where others are only a transient line.
STAYS = {"stays": True}


def get_logger(part: str) -> logging.Logger:
    """Returns the logger of a part of the project, `trainer` for example."""
    return logging.getLogger(f"{ROOT}.{part}")
