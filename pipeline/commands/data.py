"""`tfx-estimator data`: prints what lies in a folder or table, and a `data` section that reads it."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tfx_estimator.pipeline.base.errors import DataError, DeclarationError
from tfx_estimator.pipeline.base.text import one_line

if TYPE_CHECKING:
    from tfx_estimator.data.sources.source import ImageSource
    from tfx_estimator.pipeline.config.data import DataSection

HELP = "print what is in your data, and a `data` section that reads it"
_IMAGE_SIZE = (64, 64)
_SHOWN = 20
_EXPECTED = "a folder, a CSV or Parquet file, a preset, a declaration, or a TFDS name"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's argument."""
    parser.add_argument("source", metavar="SOURCE", help=_EXPECTED)


def run(args: argparse.Namespace) -> int:
    """Prints layout, splits, classes, counts, what is left out and a `data` section; raises if nothing can read it."""
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.user_data.read import read

    section, declared = _section(args.source)
    found = read(section.dataset, section.splits.names())
    say(one_line(f"{found.layout if found else 'data set'}: {section.dataset}"))
    if found and found.refusal:
        for note in found.notes():
            say(f"  {one_line(note)}")
        raise found.refusal
    source = _open(section)
    for line in _describe(source, declared):
        say(line)
    return 0


def _section(name: str) -> tuple[DataSection, bool]:
    """Returns the section, and whether a declaration has it."""
    from tfx_estimator.pipeline.config.data import DataSection
    from tfx_estimator.pipeline.config.draft import Draft, read_source
    from tfx_estimator.pipeline.config.package_names import tfds_names
    from tfx_estimator.pipeline.user_data.names import is_address, is_table

    place = name if is_address(name) else os.path.abspath(os.path.expanduser(name))
    if is_address(name) or is_table(name) or os.path.isdir(place):
        return DataSection(dataset=place), False
    try:
        draft = Draft(read_source(name))
    except DeclarationError as error:
        if name.partition("/")[0].partition(":")[0] in tfds_names():
            return DataSection(dataset=name), False
        error.expected = _EXPECTED
        raise
    draft.resolve_paths()
    # Whatever else is wrong in the declaration.
    return draft.validate("").data, True


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
