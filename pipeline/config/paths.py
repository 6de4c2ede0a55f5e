"""Paths: relative ones made absolute, and folders checked before anything is written into them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.yaml_text import Path, texts

# These are always paths; data.dataset is one if it looks like one.
PATHS: tuple[Path, ...] = (
    ("data", "data_dir"),
    ("trainer", "module_file"),
    ("trainer", "warm_start", "checkpoint"),
    ("trainer", "warm_start", "model"),
    ("transform", "module_file"),
    ("pusher", "destination"),
)
_DATASET: Path = ("data", "dataset")
# A path of other machines, which is not made absolute.
_ROOT: Path = ("deploy", "pipeline_root")
_TABLES = (".csv", ".parquet")
# name/config:version, as `tfds.load` takes it.
_TFDS_NAME = re.compile(r"[A-Za-z]\w*(/[\w+.-]+)?(:(\d+|\*)(\.(\d+|\*)){2})?")
_GLOB_CHARACTERS = "*?["
OTHER_STORE = "of all object stores, TensorFlow reads and writes only Cloud Storage by itself"
# The expectation for a path of a pipeline that runs on other machines.
OF_THIS_MACHINE = "this is a place of this machine, and the steps run elsewhere"
_VARIABLE = re.compile(r"^\$\w+(/|$)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_address(path: str) -> bool:
    """Tells an object store's address, such as gs://bucket/folder, from a path of this machine."""
    return bool(_SCHEME.match(path))


def reject_store(address: str) -> str:
    """Says why nothing is read from an address, or written there; empty for a place in Google's storage."""
    return "" if address.startswith("gs://") else OTHER_STORE


def find_unresolved(values: dict[str, Any]) -> Iterator[tuple[Path, str, str]]:
    """Yields what this tool would take for names: `$HOME/data`, `~nobody/data`; where, and why."""
    places = {_ROOT, *(path for path, _ in _sections(values))}
    for path, text in texts(values):
        if (path in places or is_address(text)) and _VARIABLE.search(text):
            yield path, text, "a variable of the environment is replaced in braces alone"
        elif path in places and os.path.expanduser(text).startswith("~"):
            yield path, text, f"there is no user {text[1:].partition(os.sep)[0]!r}"


def reject_address(path: str, option: str) -> None:
    """Refuses an address where this version needs a folder or file of this machine; `option` is where it was named."""
    if is_address(path):
        raise DeclarationError(
            f"{option} {one_line(path)}: this is an address, and this version writes only into the file systems of "
            "this machine",
            expected="a path",
            todo=f"name a path for {option}, and copy what is there to the address afterwards",
        )


def is_table(dataset: str) -> bool:
    """Tells a file of paths and labels from the name of a data set, and from a folder."""
    return dataset.lower().endswith(_TABLES)


def is_tfds_name(dataset: str) -> bool:
    """Tells what may be a name of TFDS, such as emnist/letters:3.1.0, from other paths and from a builder's class."""
    return bool(_TFDS_NAME.fullmatch(dataset)) and not is_table(dataset)


def is_path(dataset: str) -> bool:
    """Tells a folder, or a table, from the name of a data set; once paths are resolved, surely."""
    return dataset.startswith((".", "~")) or is_table(dataset) or (os.sep in dataset and not is_tfds_name(dataset))


def resolve_paths(values: dict[str, Any], bases: dict[Path, str]) -> set[Path]:
    """Makes paths absolute, in place: relative to the folder among `bases`, or to the current one."""
    changed = set()
    here = os.getcwd()
    for path, section in _sections(values):
        value = section[path[-1]]
        absolute = os.path.normpath(os.path.join(bases.get(path, here), os.path.expanduser(value)))
        if path == _DATASET and is_tfds_name(value) and not os.path.isdir(absolute):
            continue
        if absolute != value:
            section[path[-1]] = absolute
            changed.add(path)
    return changed


def _sections(values: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The paths of this machine that are declared, and the sections that hold them."""
    for path in (*PATHS, _DATASET):
        section: Any = values
        for key in path[:-1]:
            section = section.get(key) if isinstance(section, dict) else None
        value = section.get(path[-1]) if isinstance(section, dict) else None
        if not isinstance(value, str) or not value or is_address(value) or "\0" in value:
            continue
        if path != _DATASET or is_path(value) or os.sep in value:
            yield path, section


def reject_folder(path: str) -> str:
    """Says why no files can be written into a folder, which need not be there yet; empty where they can."""
    place = path
    while True:
        try:
            # Not `exists`, because a dangling link is in the way, too.
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
    expected = expected or "a folder that is there and can be written, or can be made"
    raise DeclarationError(f"{option} {one_line(written)}: {what}", expected=expected, todo=f"name another {option}")


def check_workdir(workdir: str, option: str = "--workdir", stores: bool = False) -> None:
    """Checks that runs can keep results in a folder, or a bucket's if it `stores` them, and TFX finds them again."""
    if stores and is_address(workdir):
        if reason := reject_store(workdir):
            _refuse(option, workdir, reason, "gs://BUCKET/FOLDER, or a path")
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
    """Returns the absolute path of a folder that results can be written into: checked before minutes are spent."""
    reject_address(folder, "--output")
    path = os.path.normpath(os.path.join(os.getcwd(), os.path.expanduser(folder)))
    if reason := "it names no folder" if not folder else reject_folder(path):
        _refuse("--output", folder, reason)
    for name in names:
        if os.path.lexists(os.path.join(path, name)):
            _refuse("--output", folder, f"{name} is there already", "a folder without results of earlier measurements")
    return path
