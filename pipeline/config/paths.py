"""Paths: makes relative ones absolute, and checks folders before anything is written into them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from tfx_estimator.pipeline.base import s3
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.pod_patch import PATCH
from tfx_estimator.pipeline.config.yaml_text import Path, texts
from tfx_estimator.pipeline.user_data.embedded_tables import TABLES
from tfx_estimator.pipeline.user_data.names import is_address, is_table

_CSV: Path = ("data", "csv")
_TABLES: tuple[Path, ...] = (_CSV, ("data", "parquet"), ("data", "tfrecord"))
# These are paths, or lists of paths; data.csv but for an embedded table's name, and data.dataset if it looks like one.
PATHS: tuple[Path, ...] = (
    *_TABLES,
    ("data", "data_dir"),
    ("data", "schema"),
    ("trainer", "files"),
    ("trainer", "module_file"),
    ("trainer", "warm_start", "checkpoint"),
    ("trainer", "warm_start", "model"),
    ("trainer", "warm_start", "weights"),
    ("transform", "files"),
    ("transform", "module_file"),
    ("pusher", "destination"),
    PATCH,
    ("tracking", "mlflow"),
)
_DATASET: Path = ("data", "dataset")
# A path on other machines, which stays as written.
_ROOT: Path = ("deploy", "pipeline_root")
# name/config:version, as `tfds.load` takes it.
_TFDS_NAME = re.compile(r"[A-Za-z]\w*(/[\w+.-]+)?(:(\d+|\*)(\.(\d+|\*)){2})?")
_GLOB_CHARACTERS = "*?["
_STORES = ("gs://", s3.SCHEME)
A_FOLDER = "gs://BUCKET/FOLDER or s3://BUCKET/FOLDER"
OTHER_STORE = "the object stores that are read and written here are Cloud Storage and S3"
NO_CLIENT = "s3:// needs boto3, which is not installed: pip install boto3"
OF_THIS_MACHINE = "this is on this machine, and the steps run elsewhere"
_VARIABLE = re.compile(r"^\$\w+(/|$)")


def reject_store(address: str) -> str:
    """Returns why an address cannot be read or written; empty if it can."""
    if address.startswith(s3.SCHEME) and not s3.is_installed():
        return NO_CLIENT
    return "" if address.startswith(_STORES) else OTHER_STORE


def find_unresolved(values: dict[str, Any]) -> Iterator[tuple[Path, str, str]]:
    """Yields paths with unexpanded variables or users, as `$HOME/data`, `~nobody/data`: where, the text, and why."""
    places = {_ROOT, *(path for path, _, _ in _sections(values))}
    for path, text in texts(values):
        # Of a list, the path is that of an entry.
        where = path if path in places else path[:-1]
        if where in places and _VARIABLE.search(text):
            yield path, text, "environment variables are expanded only in braces"
        elif where in places and os.path.expanduser(text).startswith("~"):
            yield path, text, f"there is no user {text[1:].partition(os.sep)[0]!r}"


def reject_address(path: str, option: str) -> None:
    """Refuses an address where this version needs a local folder or file; `option` names it in the message."""
    if is_address(path):
        raise DeclarationError(
            f"{option} {one_line(path)}: this is an address, and this version writes only to local file systems",
            expected="a path",
            todo=f"name a path for {option}, and copy its content to the address afterwards",
        )


def is_tfds_name(dataset: str) -> bool:
    """Returns whether this may be a TFDS name, such as emnist/letters:3.1.0; not a path or a builder's class."""
    return bool(_TFDS_NAME.fullmatch(dataset)) and not is_table(dataset)


def is_path(dataset: str) -> bool:
    """Returns whether the data set is a folder or a table; certain only once paths are resolved."""
    return dataset.startswith((".", "~")) or is_table(dataset) or (os.sep in dataset and not is_tfds_name(dataset))


def resolve_paths(values: dict[str, Any], bases: dict[Path, str]) -> set[Path]:
    """Makes paths absolute in place, relative to their folder in `bases` or the current one; returns those changed."""
    changed = set()
    here = os.getcwd()
    for path, section, key in _sections(values):
        value = section[key]
        absolute = os.path.normpath(os.path.join(bases.get(path, here), os.path.expanduser(value)))
        if path == _DATASET and is_tfds_name(value) and not os.path.isdir(absolute):
            continue
        if absolute != value:
            section[key] = absolute
            changed.add(path)
    return changed


def _sections(values: dict[str, Any]) -> Iterator[tuple[Path, Any, Any]]:
    """Yields the place of each declared local path, the section or list that holds it, and its key or index there."""
    for path in (*PATHS, _DATASET):
        section: Any = values
        for key in path[:-1]:
            section = section.get(key) if isinstance(section, dict) else None
        value = section.get(path[-1]) if isinstance(section, dict) else None
        holder, items = (value, [*enumerate(value)]) if isinstance(value, list) else (section, [(path[-1], value)])
        for place, text in items:
            if not isinstance(text, str) or not text or is_address(text) or "\0" in text:
                continue
            if path == _CSV and text in TABLES:
                continue
            if path != _DATASET or is_path(text) or os.sep in text:
                yield path, holder, place


def reject_folder(path: str) -> str:
    """Returns why no files can be written into a folder, which need not exist yet; empty if they can."""
    place = path
    while True:
        try:
            # Not `exists`, because a dangling link blocks the path too.
            os.lstat(place)
            break
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            place = os.path.dirname(place)
        except (OSError, ValueError) as error:
            return f"the path cannot be used: {getattr(error, 'strerror', error)}"
    if not os.path.isdir(place):
        return "this is no folder" if place == path else f"{place} is no folder"
    if not os.access(place, os.W_OK | os.X_OK):
        return "this folder cannot be written" if place == path else f"it cannot be made: {place} cannot be written"
    return ""


def _refuse(option: str, written: str, what: str, expected: str = "") -> NoReturn:
    expected = expected or "a writable folder, or one that can be made"
    raise DeclarationError(f"{option} {one_line(written)}: {what}", expected=expected, todo=f"name another {option}")


def check_workdir(workdir: str, option: str = "--workdir", stores: bool = False) -> None:
    """Checks that a folder can hold results that TFX finds again; with `stores` also folders of a store."""
    if stores and is_address(workdir):
        if reason := reject_store(workdir):
            _refuse(option, workdir, reason, f"{A_FOLDER}, or a path")
        return
    reject_address(workdir, option)
    path = os.path.normpath(os.path.join(os.getcwd(), workdir))
    if not workdir or workdir.startswith("~"):
        what = f"there is no user {workdir[1:].partition(os.sep)[0]!r}" if workdir else "it names no folder"
        _refuse(option, workdir, what)
    if found := [character for character in _GLOB_CHARACTERS if character in path]:
        what = f"the path {one_line(path)} holds `{found[0]}`, a wildcard where TFX looks for its files"
        _refuse(option, workdir, what, f"an absolute path without any of {' '.join(_GLOB_CHARACTERS)}")
    if reason := reject_folder(path):
        _refuse(option, workdir, one_line(reason))


def check_output(folder: str, names: Sequence[str]) -> str:
    """Returns the absolute path of a folder for results; checks it before minutes are spent."""
    reject_address(folder, "--output")
    path = os.path.normpath(os.path.join(os.getcwd(), os.path.expanduser(folder)))
    if reason := "it names no folder" if not folder else reject_folder(path):
        _refuse("--output", folder, reason)
    for name in names:
        if os.path.lexists(os.path.join(path, name)):
            _refuse("--output", folder, f"{name} exists already", "a folder without results of earlier measurements")
    return path
