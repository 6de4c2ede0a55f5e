"""Finds the TFDS builder of a `data` section, prepared or not, and opens prepared data sets."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from collections.abc import Callable
from typing import Any, Optional

from tfx_estimator.data.sources.files import damaged
from tfx_estimator.pipeline.base.errors import DamagedDataError, DataNotFoundError
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.user_data.read import FEATURES_FILE, INFO_FILE, find_prepared, prepared_versions
from tfx_estimator.pipeline.user_source import loader


@dataclasses.dataclass(frozen=True)
class FoundBuilder:
    """A TFDS builder, its class if known, and that class again if the user named it."""

    builder: Any
    cls: Optional[type] = None
    own: Optional[type] = None


def find_by_name(section: DataSection) -> FoundBuilder:
    """Finds `name/config:version`, with optional config and version, among prepared and registered data sets."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import naming

    import tfx_estimator.data.digits  # noqa: F401  registers the embedded data set with TFDS

    try:
        ns_name, kwargs = naming.parse_builder_name_kwargs(section.dataset)
        name = str(ns_name)
    except ValueError:
        name, kwargs = section.dataset, {}
    try:
        cls = tfds.builder_cls(name)
    except (tfds.core.DatasetNotFoundError, ValueError, ImportError):
        cls = None
    found = _find(section, name, kwargs.get("config"), section.version or kwargs.get("version"), cls)
    if found is None:
        near = difflib.get_close_matches(name, tfds.list_builders(with_community_datasets=False), 3, 0.6)
        raise DataNotFoundError(
            f"no data set {section.dataset!r}: TFDS does not know it, {_data_dirs(section)} does not hold it, and "
            "there is no such folder" + (f"; did you mean {' or '.join(near)}?" if near else ""),
            expected="a TFDS name, `digits`, `package.module:Builder`, a folder (`./NAME`) of a prepared TFDS "
            "data set, IDX files, CIFAR binary batches or images by class, or a CSV or Parquet file",
            todo="see https://www.tensorflow.org/datasets/catalog/overview, and change data.dataset",
        )
    return found


def find_by_class(section: DataSection) -> FoundBuilder:
    """Finds the builder class `package.module:Class`."""
    import tensorflow_datasets as tfds

    module_name, _, class_name = section.dataset.partition(":")
    cls: Any
    try:
        cls = getattr(importlib.import_module(loader.import_name(module_name)), class_name)
    except (ImportError, AttributeError) as error:
        raise DataNotFoundError(
            f"data.dataset {section.dataset!r} cannot be imported: {error}",
            expected="`package.module:Class` of a tfds.core.GeneratorBasedBuilder",
            todo="check the name, and that the module's folder is in PYTHONPATH",
        ) from error
    if tfds.core.DatasetBuilder not in getattr(cls, "__mro__", ()):
        raise DataNotFoundError(
            f"data.dataset {section.dataset!r} is not a TFDS builder, but {cls!r}",
            expected="a subclass of tfds.core.GeneratorBasedBuilder",
            todo="see https://www.tensorflow.org/datasets/add_dataset",
        )
    # With a raised version in the class, prepared data of an older version do not match.
    found = _find(section, cls.name, None, section.version or _class_version(cls), cls)
    assert found is not None  # the class is known
    return dataclasses.replace(found, own=cls)


def find_in_folder(section: DataSection, folder: Any) -> FoundBuilder:
    """Finds the version of a folder (`epath.Path`) that holds a prepared data set."""
    from tensorflow_datasets.core.utils import version as tfds_version

    paths = find_prepared(folder)
    if paths == [folder]:
        builder = open_prepared(folder)
        if _newest([builder.version], section.version) is None:
            raise _no_version(section.version, str(folder), [builder.version])
        return FoundBuilder(builder)
    parents = sorted({path.parent for path in paths})
    if len(parents) > 1:
        raise DataNotFoundError(
            f"{folder} holds several prepared data sets: {', '.join(str(p.relative_to(folder)) for p in parents)}",
            expected="the folder of one of them",
            todo="append its name to data.dataset, or set its name there and this folder in data.data_dir",
        )
    versions = {tfds_version.Version(path.name): path for path in paths}
    version = _newest(list(versions), section.version)
    if version is None:
        raise _no_version(section.version, str(parents[0]), list(versions))
    return FoundBuilder(open_prepared(versions[version]))


def _find(
    section: DataSection, name: str, config: Optional[str], wanted: Optional[str], cls: Any
) -> Optional[FoundBuilder]:
    """Finds the newest prepared version, or else a class that can prepare one."""
    from etils import epath
    from tensorflow_datasets.core import dataset_builder
    from tensorflow_datasets.core.utils import file_utils
    from tensorflow_datasets.core.utils import version as tfds_version

    if config is None and cls is not None:
        config = cls.default_builder_config.name if cls.BUILDER_CONFIGS else ""
    versions: dict[Any, Any] = {}
    for data_dir in file_utils.list_data_dirs(given_data_dir=section.data_dir):
        parent = epath.Path(data_dir).expanduser() / name
        # Without its class, the folder names the default config.
        parent /= (dataset_builder.load_default_config_name(parent) or "") if config is None else config
        for folder in prepared_versions(parent) if parent.is_dir() else ():
            versions.setdefault(tfds_version.Version(folder.name), folder)
    prepared = _newest(list(versions), wanted)
    if prepared is not None:
        return FoundBuilder(open_prepared(versions[prepared]), cls)
    if cls is None:
        if versions:
            raise _no_version(wanted, name, list(versions))
        return None
    configs = [each.name for each in cls.BUILDER_CONFIGS]
    if config and config not in configs:
        raise DataNotFoundError(
            f"the data set {name} of TFDS has no config {config!r}, and {_data_dirs(section)} does not hold it",
            expected=f"one of {', '.join(configs)}" if configs else f"{name}, which has none",
            todo="change data.dataset",
        )
    # TFDS prepares only the newest version of a class.
    builder = cls(data_dir=section.data_dir, config=config or None)
    if _newest([builder.version], wanted) is None:
        raise _no_version(wanted, name, [*versions, builder.version])
    return FoundBuilder(builder, cls)


def _class_version(cls: Any) -> Optional[str]:
    """Returns the version that TFDS would prepare; None if only an instance has it."""
    config = cls.default_builder_config if cls.BUILDER_CONFIGS else None
    version = (config.version if config else None) or cls.VERSION
    return str(version) if version else None


def _newest(versions: list[Any], wanted: Optional[str]) -> Any:
    """Returns the newest version that matches `wanted`, which may contain `*`."""
    try:
        matching = [version for version in versions if not wanted or version.match(wanted)]
    except ValueError:  # `wanted` is not a version
        return None
    return max(matching, default=None)


def _data_dirs(section: DataSection) -> str:
    from tensorflow_datasets.core.utils import file_utils

    return " or ".join(map(str, file_utils.list_data_dirs(given_data_dir=section.data_dir)))


def _no_version(wanted: Optional[str], where: str, versions: list[Any]) -> DataNotFoundError:
    return DataNotFoundError(
        f"no version {wanted!r} of {where}",
        expected=f"one of {', '.join(map(str, sorted(set(versions))))}",
        todo="change the version, or remove it to use the newest",
    )


def open_prepared(folder: Any) -> Any:
    """Returns TFDS's builder of a prepared data set (`epath.Path` of its version), without its class."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import dataset_info

    info_file = folder / INFO_FILE
    _parsed(info_file, lambda: dataset_info.read_from_json(info_file))
    _parsed(folder / FEATURES_FILE, lambda: tfds.features.FeatureConnector.from_config(folder))
    return _parsed(info_file, lambda: tfds.builder_from_directory(folder))


def prepared_damage(path: Any, what: str) -> DamagedDataError:
    """Returns the error for a file of a prepared data set."""
    todo = "delete the folder of this version and prepare it again"
    return damaged(path, what, "the file that TFDS wrote when it prepared the data set", todo)


def _parsed(path: Any, parse: Callable[[], Any]) -> Any:
    try:
        return parse()
    except Exception as error:
        # json, protobuf and TFDS raise various types for invalid text.
        raise prepared_damage(path, f"it cannot be parsed: {type(error).__name__}: {error}") from error
