"""A key that has another name now; files that have the old one stay valid."""

from __future__ import annotations

from typing import Any

from tfx_estimator.pipeline.config.yaml_text import Path

OLD: Path = ("trainer", "intra_op_threads")
NEW: Path = ("trainer", "threads", "intra_op")


def rename(values: dict[str, Any], lines: dict[Path, int]) -> bool:
    """Writes the new key in the place of the old one, in place; not beside a new one, which is a mistake to tell.

    Args:
        lines: The line of each key, by its path.
    """
    trainer = values.get(OLD[0])
    if not isinstance(trainer, dict) or trainer.get(OLD[1]) is None:
        return False
    section = trainer.setdefault(NEW[1], {})
    if not isinstance(section, dict) or NEW[2] in section:
        return False
    section[NEW[2]] = trainer.pop(OLD[1])
    if OLD in lines:
        lines[NEW] = lines.pop(OLD)
    return True
