"""Reads a declaration's text: from a preset or a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tfx_estimator.pipeline import presets
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.files import names_in
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.problems import Problem, nearest, to_error
from tfx_estimator.pipeline.config.yaml_text import Document, inline, read_yaml

_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class SourceText:
    """A declaration's text.

    Args:
        source: The preset or file, as the user named it.
        file: The file that was read.
        folder: What its relative paths are relative to.
        label: Names it in messages.
        short_label: Names it in comments.
        document: What the text says; its value is a mapping.
    """

    source: str
    file: str
    folder: str
    label: str
    short_label: str
    document: Document


def read_source(source: str) -> SourceText:
    """Reads a preset or a file; the problems of its document are not raised yet."""
    is_preset = source in presets.names()
    shown = one_line(source)
    file = str(presets.path(source)) if is_preset else _absolute(source)
    label = f"preset {source}" if is_preset else shown
    document = read_yaml(_read_text(source, file), label)
    if not isinstance(document.value, dict):
        if not document.problems:
            is_empty = document.value is None
            what = "it is empty" if is_empty else f"it holds {inline(document.value)[:60]}, no mapping"
            todo = f"start from a preset: tfx-estimator copy {presets.names()[0]} {shown if is_empty else 'FILE'}"
            document.problems.append(Problem("", what, "a mapping with name, data and trainer", todo, f"{label}:1"))
        raise to_error(document.problems, source)
    folder = os.getcwd() if is_preset else os.path.dirname(file)
    short_label = label if is_preset else one_line(os.path.basename(file))
    return SourceText(source, file, folder, label, short_label, document)


def _read_text(source: str, file: str) -> str:
    expected = f"a YAML file, or one of the presets {', '.join(presets.names())}"
    shown = one_line(source)
    try:
        return Path(file).read_text("utf-8-sig")
    except FileNotFoundError:
        what, todo = f"there is no declaration {shown}", _missing_hint(source, file)
        raise DeclarationError(what, expected=expected, todo=todo) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        what = f"{shown}:{line} is not UTF-8: byte 0x{error.object[error.start]:02x}"
        raise DeclarationError(what, expected="UTF-8 text", todo="save the file as UTF-8") from error
    except (OSError, ValueError) as error:
        what = f"{shown} cannot be read: {getattr(error, 'strerror', error)}"
        raise DeclarationError(what, expected=expected, todo="name the YAML file, and check its permissions") from error


def _absolute(source: str) -> str:
    return os.path.normpath(os.path.join(os.getcwd(), os.path.expanduser(source)))


def _missing_hint(source: str, file: str) -> str:
    folder = os.path.dirname(file)
    # Compares without the suffix, which all names have in common.
    files = {os.path.splitext(name)[0]: name for name in names_in(folder) if name.endswith(_SUFFIXES)}
    if near := nearest(source, presets.names()):
        return f"did you mean the preset `{near}`?"
    if near := nearest(os.path.splitext(os.path.basename(source))[0], files):
        return f"did you mean `{os.path.join(os.path.dirname(source), files[near])}`?"
    return "list the presets: tfx-estimator presets"
