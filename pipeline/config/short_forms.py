"""Short forms, and what they stand for: `mirrored:2` of a strategy, `keep_best: accuracy`, `metrics: [AUC]`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tfx_estimator.pipeline.config.augment import long_operations
from tfx_estimator.pipeline.config.best import long_metric
from tfx_estimator.pipeline.config.evaluator import long_metrics
from tfx_estimator.pipeline.config.parallel import long_sync
from tfx_estimator.pipeline.config.strategies import COUNTED, TRAITS
from tfx_estimator.pipeline.config.tune import long_ranges
from tfx_estimator.pipeline.config.yaml_text import Path

_UNCOUNTED = [name for name in TRAITS if name not in COUNTED]
# For editors that check YAML by the JSON schema.
STRATEGY_SCHEMA = {"type": "string", "pattern": rf"^(({'|'.join(COUNTED)})(:[1-9][0-9]?)?|{'|'.join(_UNCOUNTED)})$"}
DEVICES_SCHEMA = {"type": "integer", "minimum": 1, "maximum": 64}
_COUNT = re.compile(r"[0-9]{1,4}")
_RANGES = ("tune", "ranges")


def long_strategy(value: Any) -> Any:
    """Writes a strategy's short form as a mapping: `mirrored:2` is 2 logical CPUs, of a cluster it is 2 workers."""
    if not isinstance(value, str):
        return value
    name, _, count = value.partition(":")
    if name not in COUNTED or not _COUNT.fullmatch(count):
        return {"strategy": value}
    sizes = {"workers": int(count)} if TRAITS[name].is_cluster else {"devices": {"cpu": int(count)}}
    return {"strategy": name, **sizes}


def long_devices(value: Any) -> Any:
    """Writes a number of devices as a mapping: `2` is that many logical CPUs."""
    return {"cpu": value} if isinstance(value, int) and not isinstance(value, bool) else value


# Where there is a short form, and what writes it at length; a section before its keys.
_SHORT: dict[str, Callable[[Any], Any]] = {
    "trainer.augment": long_operations,
    "trainer.keep_best": long_metric,
    "trainer.early_stopping": long_metric,
    "trainer.sync_every": long_sync,
    "trainer.distribution.train": long_strategy,
    "trainer.distribution.train.devices": long_devices,
    "trainer.distribution.eval": long_strategy,
    "trainer.distribution.eval.devices": long_devices,
    "tune.objective": long_metric,
    "evaluator.metrics": long_metrics,
}


def expand(values: dict[str, Any], lines: dict[Path, int]) -> None:
    """Writes the long forms in the place of the short ones, in place."""
    for dotted, lengthen in _SHORT.items():
        path = tuple(dotted.split("."))
        section, key = _find(values, path[:-1]), path[-1]
        if key in section:
            section[key] = lengthen(section[key])
            _set_lines(section[key], lines, path)
    tune = _find(values, _RANGES[:1])
    if "ranges" in tune:
        tune["ranges"] = long_ranges(tune["ranges"])
        # Dotted paths stand on the lines of nested sections.
        for name, item in tune["ranges"].items() if isinstance(tune["ranges"], dict) else ():
            path = (*_RANGES, name)
            if path not in lines and (line := lines.get((*_RANGES, *name.split(".")))) is not None:
                lines[path] = line
            _set_lines(item, lines, path)


def _find(values: Any, path: Path) -> dict[str, Any]:
    """The section at a path; one of its own where there is none."""
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values if isinstance(values, dict) else {}


def _set_lines(value: Any, lines: dict[Path, int], path: Path) -> None:
    """What stands in no line of its own stands in that of its section, if this does."""
    if isinstance(value, dict) and path in lines:
        for key, item in value.items():
            lines.setdefault((*path, key), lines[path])
            _set_lines(item, lines, (*path, key))
