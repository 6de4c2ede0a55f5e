"""Short forms, and what they stand for: `mirrored:2` of a strategy, `keep_best: accuracy`, `metrics: [AUC]`."""

from __future__ import annotations

import re
from typing import Any

from tfx_estimator.pipeline.config.augment import long_operations
from tfx_estimator.pipeline.config.best import long_metric
from tfx_estimator.pipeline.config.evaluator import long_metrics
from tfx_estimator.pipeline.config.strategies import TRAITS
from tfx_estimator.pipeline.config.sync import long_sync
from tfx_estimator.pipeline.config.tune import long_ranges
from tfx_estimator.pipeline.config.yaml_text import Path

_COUNTED = "|".join(name for name, traits in TRAITS.items() if traits.on_devices or traits.is_cluster)
# For editors that check YAML by the JSON schema.
STRATEGY_SCHEMA = {"type": "string", "pattern": rf"^(({_COUNTED})(:[1-9][0-9]?)?|one_device|tpu)$"}
DEVICES_SCHEMA = {"type": "integer", "minimum": 1, "maximum": 64}
_COUNT = re.compile(r"[0-9]{1,4}")
_TRAINER, _SECTION, _TUNE = ("trainer",), ("trainer", "distribution"), ("tune",)


def long_strategy(value: Any) -> Any:
    """Writes a strategy's short form as a mapping: `mirrored:2` is 2 logical CPUs, of a cluster it is 2 workers.

    Args:
        value: What was declared; anything but a text is left as it is.

    Returns:
        The mapping; what is no short form is its `strategy`.
    """
    if not isinstance(value, str):
        return value
    name, _, count = value.partition(":")
    traits = TRAITS.get(name)
    counted = traits is not None and (traits.on_devices or traits.is_cluster)
    if traits is None or not counted or not _COUNT.fullmatch(count):
        return {"strategy": value}
    return {"strategy": name, **({"workers": int(count)} if traits.is_cluster else {"devices": {"cpu": int(count)}})}


def long_devices(value: Any) -> Any:
    """Writes a number of devices as a mapping: `2` is that many logical CPUs.

    Args:
        value: What was declared; anything but a whole number is left as it is.
    """
    return {"cpu": value} if isinstance(value, int) and not isinstance(value, bool) else value


def expand(values: dict[str, Any], lines: dict[Path, int]) -> None:
    """Writes the long forms in the place of the short ones, in place.

    Args:
        lines: The line of each key, by its path; those of the long forms are added.
    """
    trainer, section = _find(values, _TRAINER), _find(values, _SECTION)
    if "augment" in trainer:
        trainer["augment"] = long_operations(trainer["augment"])
    evaluator = _find(values, ("evaluator",))
    if "metrics" in evaluator:
        evaluator["metrics"] = long_metrics(evaluator["metrics"])
    for key in ("keep_best", "early_stopping"):
        _replace(trainer, key, long_metric, lines, (*_TRAINER, key))
    _replace(trainer, "sync_every", long_sync, lines, (*_TRAINER, "sync_every"))
    tune = _find(values, _TUNE)
    _replace(tune, "objective", long_metric, lines, (*_TUNE, "objective"))
    if "ranges" in tune:
        tune["ranges"] = _place_ranges(tune["ranges"], lines)
    for key in ("train", "eval"):
        path = (*_SECTION, key)
        _replace(section, key, long_strategy, lines, path)
        if isinstance(section.get(key), dict):
            _replace(section[key], "devices", long_devices, lines, (*path, "devices"))


def _find(values: Any, path: Path) -> dict[str, Any]:
    """The section at a path; one of its own where there is none."""
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values if isinstance(values, dict) else {}


def _place_ranges(ranges: Any, lines: dict[Path, int]) -> Any:
    """Writes dotted paths in the place of nested sections, on the lines of those."""
    longer = long_ranges(ranges)
    if longer is not ranges:
        path = (*_TUNE, "ranges")
        for name, item in longer.items():
            dotted, nested = (*path, name), (*path, *name.split("."))
            if (line := lines.get(dotted, lines.get(nested))) is not None:
                lines[dotted] = line
                _set_lines(item, lines, dotted)
    return longer


def _replace(section: dict[str, Any], key: str, lengthen: Any, lines: dict[Path, int], path: Path) -> None:
    if key not in section or (longer := lengthen(section[key])) is section[key]:
        return
    section[key] = longer
    if path in lines:
        _set_lines(longer, lines, path)


def _set_lines(value: Any, lines: dict[Path, int], path: Path) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            inner = (*path, key)
            lines[inner] = lines[path]
            _set_lines(item, lines, inner)
