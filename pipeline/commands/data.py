"""`tfx-estimator data`: prints what lies in a folder or table, and a `data` section that reads it."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Optional

from tfx_estimator.pipeline.base.errors import DataError, DeclarationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.commands.shared import add_workdir

if TYPE_CHECKING:
    from tfx_estimator.data.sources.source import ImageSource
    from tfx_estimator.pipeline.config.data import DataSection
    from tfx_estimator.pipeline.user_data.table import Column, TableReading

HELP = "print what is in your data, and a `data` section that reads it"
_IMAGE_SIZE = (64, 64)
_SHOWN, _COLUMNS, _WIDTH = 20, 30, 40
_LABELS = ("label", "target", "class", "y")
_EXPECTED = "a folder, a CSV or Parquet file, a preset, a declaration, or a TFDS name"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("source", metavar="SOURCE", help=_EXPECTED)
    add_workdir(parser, "of a declaration: where its runs keep the schema of a table")


def run(args: argparse.Namespace) -> int:
    """Prints layout, splits, classes, counts, what is left out and a `data` section; raises if nothing can read it."""
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.folders import PipelineFolders
    from tfx_estimator.pipeline.user_data.names import is_address
    from tfx_estimator.pipeline.user_data.read import read
    from tfx_estimator.pipeline.user_data.table import find_features

    place = os.path.abspath(os.path.expanduser(args.source))
    if not is_address(args.source) and (key := find_features(place)):
        for line in _describe_table(place, key):
            say(line)
        return 0
    section, name = _section(args.source)
    if section.is_table:
        kept = "" if section.schema or is_address(args.workdir) else PipelineFolders(args.workdir, name).schema
        for line in _describe_table(
            section.table_path, section.table_keys[0], section.label, kept, section.table().read()
        ):
            say(line)
        return 0
    found = read(section.dataset, section.splits.names())
    say(one_line(f"{found.layout if found else 'data set'}: {section.dataset}"))
    if found and found.refusal:
        for note in found.notes():
            say(f"  {one_line(note)}")
        raise found.refusal
    source = _open(section)
    for line in _describe(source, declared=name != ""):
        say(line)
    return 0


def _section(name: str) -> tuple[DataSection, str]:
    """Returns the section, and the name of the declared pipeline; empty without a declaration."""
    from tfx_estimator.pipeline.config.data import DataSection
    from tfx_estimator.pipeline.config.draft import Draft, read_source
    from tfx_estimator.pipeline.config.package_names import tfds_names
    from tfx_estimator.pipeline.user_data.names import is_address, is_table

    place = name if is_address(name) else os.path.abspath(os.path.expanduser(name))
    if is_address(name) or is_table(name) or os.path.isdir(place):
        return DataSection(dataset=place), ""
    try:
        draft = Draft(read_source(name))
    except DeclarationError as error:
        if name.partition("/")[0].partition(":")[0] in tfds_names():
            return DataSection(dataset=name), ""
        error.expected = _EXPECTED
        raise
    draft.resolve_paths()
    # Whatever else is wrong in the declaration.
    declaration = draft.validate("")
    return declaration.data, declaration.name


def _open(section: DataSection) -> ImageSource:
    from tfx_estimator.data.sources import open_source

    try:
        return open_source(section)
    except DataError:
        # Images of several sizes need one.
        with contextlib.suppress(DataError):
            return open_source(section.copy(update={"image_size": section.image_size or _IMAGE_SIZE}))
        raise


def _describe(source: ImageSource, declared: bool) -> Iterator[str]:
    from tfx_estimator.data.sources import ExampleRange
    from tfx_estimator.data.sources.image_files import ImageFilesSource
    from tfx_estimator.pipeline.config.data import DataSection, suggest_splits
    from tfx_estimator.pipeline.config.yaml_text import inline
    from tfx_estimator.pipeline.user_data.names import by_role
    from tfx_estimator.pipeline.user_data.reading import listed

    names, section = source.info.label_names, source.section
    lengths = source.shard_lengths() if source.is_prepared else {}
    sizes = {split: size for split in by_role(lengths) if (size := sum(lengths[split]))}
    counts = source.count_classes()
    yield f"  {len(names):,} classes: {listed(names, _SHOWN)}{'' if source.is_prepared else '; not prepared'}"
    for split, size in sizes.items():
        of = [f"{name} ({counts[split][label]:,})" for label, name in enumerate(names)] if counts else []
        yield one_line(f"  split {split}: {size:,} examples{': ' if of else ''}{listed(of, _SHOWN)}")
    if isinstance(source, ImageFilesSource):
        by_size, channels, formats = source.contents
        shapes: dict[Any, Any] = {f"{height} x {width}": files for (height, width), files in by_size.items()}
        found = {"sizes (height x width)": shapes, "channels": channels, "formats": formats}
        for what, kinds in found.items():
            ordered = sorted(kinds.items(), key=lambda item: -len(item[1]))
            yield f"  {what}: {listed([f'{kind} ({len(files):,})' for kind, files in ordered], _SHOWN)}"
    else:
        yield "  sizes (height x width): {} x {}; channels: {}".format(*source.info.image_shape)
    expressions, own, notes = list(sizes), section.splits.declared(), []
    for split in () if counts else sizes:  # of files, all labels are counted
        try:
            next(source.read(ExampleRange(split, 0, 1)))
        except DataError as error:
            expressions.remove(split)
            notes.append(error.what)
    splits = suggest_splits(expressions, len(expressions) > 2) if expressions else f"splits: {inline(own)}"
    with contextlib.suppress(DataError):
        if declared and {part.split for each in source.resolve_disjoint().values() for part in each} <= {*expressions}:
            expressions, splits = list(own.values()), f"splits: {inline(own)}"
    for note in (*notes, *source.notes(expressions)):
        yield f"  note: {one_line(note)}"
    yield "data:"
    default = DataSection(dataset="", splits=section.splits).dict()
    yield from (f"  {key}: {inline(value)}" for key, value in section.dict().items() if value != default[key])
    yield f"  {splits}"


def _describe_table(
    declared_place: str,
    key: str,
    declared: Optional[str] = None,
    kept: str = "",
    read: Optional[tuple[str, dict[str, str]]] = None,
) -> Iterator[str]:
    from tfx_estimator.pipeline.config.task import task_of
    from tfx_estimator.pipeline.config.yaml_text import inline
    from tfx_estimator.pipeline.user_data.embedded_tables import place_of
    from tfx_estimator.pipeline.user_data.reading import listed
    from tfx_estimator.pipeline.user_data.schema import compare_kept
    from tfx_estimator.pipeline.user_data.table import FORMATS, read_table

    place, by_split = read or (place_of(declared_place) if key == "csv" else declared_place, {})
    found = read_table(place, by_split, key=key)
    names = [column.name for column in found.columns]
    label = found.column(declared or "") or _guess_label(found)
    files = "" if len(found.files) == 1 else f" of {len(found.files):,} files"
    yield one_line(f"table of features: {found.place}")
    yield f"  {'' if found.is_whole else 'the first '}{found.rows:,} rows{files}, {len(names):,} columns"
    shown = found.columns[:_COLUMNS]
    width = max(6, *(len(_cut(column.name)) for column in shown))
    yield f"  {'column':{width}}  {'kind':5}  {'missing':>7}  values"
    for column in shown:
        yield f"  {_cut(column.name):{width}}  {column.kind or '-':5}  {column.missing:7,}  {_values(column)}"
    if names[_COLUMNS:]:
        yield f"  and {len(names) - _COLUMNS:,} more columns"
    if kept and os.path.exists(kept):
        yield one_line(f"  schema: {kept}")
        yield from (one_line(f"  note: unlike in the schema, {each}") for each in compare_kept(kept, found))
    # What is wrong with the label is told below the columns.
    for note in (read_table(place, by_split, label.name, key) if label else found).notes():
        yield f"  note: {note}"
    if label and (task := task_of(label)):
        yield one_line(f"  the label {label.name} asks for: {task}")
    yield "data:"
    yield f"  {key}: {inline(os.path.join(place, FORMATS[key].PATTERN) if os.path.isdir(place) else declared_place)}"
    yield f"  label: {inline(label.name) if label else f'...  # choose one of {listed(names)}'}"
    yield "  splits: {train: 2, eval: 1}"


def _guess_label(found: TableReading) -> Optional[Column]:
    """Returns the column that has a label's name, or the last one if it tells two classes apart."""
    from tfx_estimator.pipeline.config.task import BINARY, task_of

    named, last = [column for column in found.columns if column.name.lower() in _LABELS], found.columns[-1]
    return named[0] if len(named) == 1 else last if task_of(last) == BINARY and not last.missing else None


def _values(column: Column) -> str:
    """Returns the range of numbers, or the most frequent words."""
    if column.length > 1:
        return f"up to {column.length:,} a row"
    words = [f"{_cut(value)} ({count:,})" for value, count in list(column.values.items())[:3]]
    shown = ", ".join(words) if column.lowest is None else f"{column.lowest:,} to {column.highest:,}"
    return (
        shown if column.lowest is None and column.distinct == len(words) else f"{shown}; different: {column.distinct:,}"
    )


def _cut(text: str) -> str:
    return one_line(text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…")
