"""`tfx-estimator data`: prints what lies in a folder or table, and a `data` section that reads it."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tfx_estimator.pipeline.base.text import one_line

if TYPE_CHECKING:
    from tfx_estimator.data.sources.source import ImageSource
    from tfx_estimator.pipeline.config.data import DataSection

HELP = "print what is in your data, and a `data` section that reads it"
_IMAGE_SIZE = (64, 64)
_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's argument."""
    parser.add_argument("source", metavar="SOURCE", help="a folder, a CSV or Parquet file, a preset or a declaration")


def run(args: argparse.Namespace) -> int:
    """Prints layout, splits, classes, counts, what is left out and a `data` section; raises if nothing can read it."""
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.user_data.read import read

    section = _section(args.source)
    found = read(section.dataset, section.splits.names())
    say(one_line(f"{found.layout if found else 'data set'}: {section.dataset}"))
    if found and found.refusal:
        for note in found.notes():
            say(f"  {one_line(note)}")
        raise found.refusal
    source = _open(section)
    for line in _describe(source):
        say(line)
    return 0


def _section(name: str) -> DataSection:
    from tfx_estimator.pipeline.config.data import DataSection
    from tfx_estimator.pipeline.config.draft import Draft, read_source
    from tfx_estimator.pipeline.user_data.names import is_address, is_table

    place = name if is_address(name) else os.path.abspath(os.path.expanduser(name))
    if is_address(name) or is_table(name) or os.path.isdir(place):
        return DataSection(dataset=place)
    draft = Draft(read_source(name))
    draft.resolve_paths()
    # Whatever else is wrong in the declaration.
    return draft.validate("").data


def _open(section: DataSection) -> ImageSource:
    from tfx_estimator.data.sources import open_source
    from tfx_estimator.pipeline.base.errors import DataError

    try:
        return open_source(section)
    except DataError:
        # Images of several sizes need one.
        with contextlib.suppress(DataError):
            return open_source(section.copy(update={"image_size": section.image_size or _IMAGE_SIZE}))
        raise


def _describe(source: ImageSource) -> Iterator[str]:
    from tfx_estimator.data.sources.image_files import ImageFilesSource
    from tfx_estimator.pipeline.config.data import DataSection, suggest_splits
    from tfx_estimator.pipeline.config.yaml_text import inline
    from tfx_estimator.pipeline.user_data.reading import listed

    names, section = source.info.label_names, source.section
    sizes = {split: sum(lengths) for split, lengths in source.shard_lengths().items()} if source.is_prepared else {}
    counts = source.count_classes()
    yield f"  {len(names):,} classes: {listed(names, _SHOWN)}"
    for split, size in sizes.items():
        of = [f"{name} ({counts[split][label]:,})" for label, name in enumerate(names)] if counts else []
        yield one_line(f"  split {split}: {size:,} examples{': ' if of else ''}{listed(of, _SHOWN)}")
    if isinstance(source, ImageFilesSource):
        # Its hashes find equal images.
        source.fingerprint(list(sizes))
        by_size, channels, formats = source.contents
        shapes: dict[Any, Any] = {f"{height} x {width}": files for (height, width), files in by_size.items()}
        found = {"sizes (height x width)": shapes, "channels": channels, "formats": formats}
        for what, kinds in found.items():
            ordered = sorted(kinds.items(), key=lambda item: -len(item[1]))
            yield f"  {what}: {listed([f'{kind} ({len(files):,})' for kind, files in ordered], _SHOWN)}"
    else:
        yield "  sizes (height x width): {} x {}; channels: {}".format(*source.info.image_shape)
    for note in source.notes():
        yield f"  note: {one_line(note)}"
    yield "data:"
    default = DataSection(dataset="").dict()
    declared = {key: value for key, value in section.dict().items() if value != default[key] and key != "splits"}
    yield from (f"  {key}: {inline(value)}" for key, value in declared.items())
    if sizes:
        yield f"  {suggest_splits(list(sizes), len(sizes) > 2)}"
