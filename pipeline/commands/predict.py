"""`tfx-estimator predict`: predicts images, rows of a table, or tf.Examples by a trained model."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Optional

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.files import drafting, writing
from tfx_estimator.pipeline.base.text import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from tfx_estimator.pipeline.config.beam import BeamSection
    from tfx_estimator.pipeline.predict.found_model import FoundModel
    from tfx_estimator.pipeline.predict.inputs import Unread
    from tfx_estimator.pipeline.predict.session import Progress

HELP = "predict images, rows of a table, or tf.Examples, by a pushed model, a run, or a SavedModel"
EPILOG = """\
  tfx-estimator predict runs/mnist/serving photo.png              the newest pushed version
  tfx-estimator predict runs/mnist photos --output classes.csv    the model of the last run
  find . -name '*.jpg' | tfx-estimator predict runs/mnist -
"""
_BATCH_SIZE = 128
_UPDATE_SECONDS = 0.5
_SHOWN = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a pushed version, or a folder of versions (the newest); a run, as `report` takes it; or any SavedModel",
    )
    parser.add_argument(
        "inputs",
        metavar="INPUT",
        nargs="+",
        help="an image, a folder of them, or a CSV or Parquet file of their names; a CSV or Parquet file of features; "
        "a TFRecord file of tf.Examples; or - for names on standard input, one per line",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="the file to write, whose ending is .csv, .jsonl, .parquet or, of tf.Examples, .tfrecord or .tfrecord.gz; "
        "an existing file is replaced (default: standard output, as CSV)",
    )
    parser.add_argument(
        "--top", metavar="K", type=int, help="write the K classes with the highest scores (default: the scores of all)"
    )
    parser.add_argument(
        "--batch-size", metavar="N", type=int, default=_BATCH_SIZE, help="examples per call (default: %(default)s)"
    )
    parser.add_argument(
        "--signature",
        metavar="NAME[:OUTPUT]",
        default="",
        help="the signature to call, and the output that holds the scores (default: the first that fits)",
    )
    parser.add_argument(
        "--pixels",
        metavar="LOW,HIGH",
        help="for a model that takes images as floats: the values of the pixels 0 and 255, such as 0,1",
    )
    parser.add_argument(
        "--beam",
        metavar="DECLARATION",
        help="predict on the Beam runner of a preset or a YAML file, from its section `beam` (default: in this "
        "process); needs --output",
    )
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    """Predicts, and writes the predictions."""
    from tfx_estimator.pipeline.base.installed import uncollected
    from tfx_estimator.pipeline.commands.shared import check_file
    from tfx_estimator.pipeline.predict.output import writer_for
    from tfx_estimator.pipeline.run.terminal import make_console, quiet

    for name in ("top", "batch_size"):
        if (value := getattr(args, name)) is not None and value < 1:
            option = f"--{name.replace('_', '-')}"
            raise DeclarationError(f"{option} {value}: this is out of range", expected="1 or more", todo="correct it")
    pixels = _read_pixels(args.pixels)
    kind = writer_for(args.output)
    if args.output is not None:
        check_file(args.output, force=True)
    section = _read_section(args.beam, args.output)
    # A status line would mix with predictions on the same terminal.
    shows_status = args.output is not None or not os.isatty(1)
    # Hides what TensorFlow prints.
    with _opened(args.output) as file, quiet(os.devnull, 2) as terminal:
        console = make_console(terminal)
        with console.status("starting TensorFlow") if shows_status else contextlib.nullcontext() as status:
            with uncollected():
                from tfx_estimator.pipeline.predict import model as models
                from tfx_estimator.pipeline.predict import session
                from tfx_estimator.pipeline.predict.found_model import find
                from tfx_estimator.pipeline.predict.inputs import Inputs
            found = find(args.model)
            if found.blessed is False:
                console.print(f"{one_line(found.folder)} is not blessed")
            chosen = models.choose(found, args.signature)
            models.check_pixels(chosen, pixels)
            inputs = Inputs(args.inputs, _lines(), () if chosen.image_shape else chosen.features)
            checked = session.checked(inputs, chosen, lambda text: console.print(one_line(text)))
            if status is not None:
                status.update("loading the model" if section is None else "predicting on the Beam runner")
            if section is None:
                results = session.predict(models.Model(chosen, pixels), checked, args.batch_size)
            else:
                from tfx_estimator.pipeline.predict.on_beam import Call, predict_on_beam

                call = Call(found, args.signature, pixels, args.batch_size)
                results = predict_on_beam(call, checked, section, _parts(args.output, section))
            progress = session.write(
                session.with_probabilities(results, len(chosen.labels), console.print),
                lambda first: kind(file, inputs.columns, chosen.labels_of(first.scores, first.values), args.top),
                _ProgressPrinter(console, status),
            )
        file.flush()
        for line in _summary(found, inputs.left_out, progress):
            console.print(line)
    progress.check()
    return 0


def _lines() -> Iterator[str]:
    """Yields the lines of standard input, which may be closed, or not be valid text."""
    if sys.stdin is not None:
        yield from map(os.fsdecode, sys.stdin.buffer)


class _ProgressPrinter:
    """Prints unreadable inputs, and updates the status line."""

    def __init__(self, console: Console, status: Optional[Status]) -> None:
        self._console, self._status = console, status
        self._updated = 0.0

    def __call__(self, progress: Progress, unread: Optional[Unread]) -> None:
        if unread is not None:
            self._console.print(one_line(unread.what))
        if self._status is not None and time.monotonic() > self._updated + _UPDATE_SECONDS:
            self._status.update(str(progress))
            self._updated = time.monotonic()


def _summary(found: FoundModel, left_out: Sequence[str], progress: Progress) -> Iterator[str]:
    if left_out:
        more = f", and {len(left_out) - _SHOWN:,} more" if left_out[_SHOWN:] else ""
        shown = one_line(", ".join(left_out[:_SHOWN]))
        yield f"left out, as neither images nor TFRecord files, or hidden: {shown}{more}"
    yield f"model  {one_line(found.folder)}{', which is not blessed' if found.blessed is False else ''}"
    yield f"{progress} (reading, prediction and writing)"


@contextlib.contextmanager
def _opened(output: Optional[str]) -> Iterator[IO[bytes]]:
    """Opens a file that replaces the output when complete; or a copy of standard output."""
    if output is None:
        with os.fdopen(os.dup(1), "wb") as file:
            yield file
        return
    with writing(output), drafting(os.path.expanduser(output), named=True) as draft, open(draft, "wb") as file:
        yield file


def _read_section(declaration: Optional[str], output: Optional[str]) -> Optional[BeamSection]:
    if declaration is None:
        return None
    from tfx_estimator.pipeline.config import load

    if output is None:
        raise DeclarationError(
            "--beam needs --output",
            expected="a file: workers keep their predictions next to it until all are done",
            todo="add --output FILE",
        )
    return load(declaration).declaration.beam


def _parts(output: str, section: BeamSection) -> str:
    """Returns a temporary folder that workers can reach."""
    name = f".{os.path.basename(output)}.{os.urandom(4).hex()}"
    folder = os.path.dirname(os.path.abspath(os.path.expanduser(output)))
    return os.path.join(section.dataflow.temp_location if section.dataflow else folder, name)


def _read_pixels(text: Optional[str]) -> Optional[tuple[float, float]]:
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise DeclarationError(
            f"--pixels {one_line(text)}: these are not two numbers", expected="LOW,HIGH, such as 0,1", todo="correct it"
        ) from None
    return low, high
