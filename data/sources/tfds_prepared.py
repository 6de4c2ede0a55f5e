"""Opens a TFDS data set that is prepared, and names the file of it that is damaged."""

from __future__ import annotations

import functools
import json
import os
from typing import Any

from tfx_estimator.data.sources.damage import damaged, reading
from tfx_estimator.pipeline.base.errors import DamagedDataError, TfxEstimatorError

INFO_FILE, FEATURES_FILE = "dataset_info.json", "features.json"
_TODO = "delete the folder of this version and prepare it again"


def is_prepared(folder: Any) -> bool:
    """Returns whether a version's folder (`epath.Path`) holds a prepared data set, be it damaged.

    TFDS writes both files, and renames the folder when it is whole: one without the other was lost later.
    """
    return (folder / INFO_FILE).exists() or (folder / FEATURES_FILE).exists()


def open_prepared(folder: Any) -> Any:
    """Returns TFDS's builder of a prepared data set, which needs no builder class.

    Args:
        folder: `epath.Path` of its version.

    Raises:
        DamagedDataError: A file that describes the data set is missing, cut short or contradicts another.
    """
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import dataset_info

    info_file, features_file = folder / INFO_FILE, folder / FEATURES_FILE
    for path in (info_file, features_file):
        with reading(path, _TODO):
            path.read_text()
    info = _parsed(info_file, functools.partial(dataset_info.read_from_json, info_file))
    if not (info.name and info.version and info.splits):
        raise prepared_damage(info_file, "it names no data set, no version or no split")
    for split in info.splits:
        if any(length < 0 for length in split.shard_lengths):
            raise prepared_damage(info_file, f"its split {split.name!r} has files of a negative length")
    _parsed(features_file, functools.partial(tfds.features.FeatureConnector.from_config, folder))
    for name, count in _class_counts(features_file).items():
        _check_names(folder / f"{name}.labels.txt", count)
    return _parsed(info_file, functools.partial(tfds.builder_from_directory, folder))


def default_config(folder: Any) -> str:
    """Returns the config that the name of a data set alone means, as its folder says; "" where it has none.

    Args:
        folder: `epath.Path` of all its configs.

    Raises:
        DamagedDataError: What the folder says cannot be understood.
    """
    from tensorflow_datasets.core import dataset_builder

    try:
        return dataset_builder.load_default_config_name(folder) or ""
    except (ValueError, AttributeError) as error:
        raise prepared_damage(folder / ".config" / "metadata.json", f"it cannot be understood: {error}") from error


def prepared_damage(path: Any, what: str) -> DamagedDataError:
    """Returns the error for a file of a prepared data set."""
    return damaged(path, what, "the file that TFDS wrote when it prepared the data set", _TODO)


def _parsed(path: Any, parse: Any) -> Any:
    try:
        return parse()
    except TfxEstimatorError:
        raise
    except Exception as error:
        # json, protobuf and TFDS each have errors of their own for text that is not theirs.
        raise prepared_damage(path, f"it cannot be understood: {type(error).__name__}: {error}") from error


def _class_counts(path: Any) -> dict[str, int]:
    """The number of classes that features.json says of each label."""
    features = json.loads(path.read_text()).get("featuresDict", {}).get("features", {})
    counts = {name: feature.get("classLabel", {}).get("numClasses") for name, feature in features.items()}
    return {name: int(count) for name, count in counts.items() if count}


def _check_names(path: Any, count: int) -> None:
    """TFDS believes the file of names more than the number of classes, and goes without one that it cannot read."""
    if not (path.exists() or os.path.islink(path)):
        return
    with reading(path, _TODO):
        names = {line.strip() for line in path.read_text().split("\n") if line.strip()}
    if len(names) != count:
        raise prepared_damage(path, f"it names {len(names)} classes, and {FEATURES_FILE} says {count}")
