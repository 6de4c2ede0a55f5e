"""`tfx-estimator compare`: several trainings on the same examples, side by side."""

from __future__ import annotations

import argparse
import json
from typing import Optional

from tfx_estimator.pipeline.base.errors import DeclarationError, NotEqualError
from tfx_estimator.pipeline.commands.shared import add_declaration, add_workdir

HELP = "train declarations on the same examples, or take finished runs, and compare them side by side"
_EPILOG = """\
The others are compared with the first one.

  tfx-estimator compare a.yaml b.yaml                                   trains both
  tfx-estimator compare mnist --vary trainer.path=estimator,keras       one declaration under several values
  tfx-estimator compare a.yaml b.yaml --repeat 3                        under three seeds each
  tfx-estimator compare runs/mnist/logs/TIME1 runs/mnist/logs/TIME2     finished runs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    add_declaration(
        parser,
        several=True,
        source="a preset's name, a YAML file, or the folder of a finished run, as `report` takes it",
        overridden="one value of every declaration",
    )
    parser.add_argument(
        "--vary",
        metavar="KEY=VALUE,…",
        action="append",
        default=[],
        help="compare the one declaration under each of the values: --vary trainer.seed=1,2; several --vary give each "
        "combination",
    )
    parser.add_argument(
        "--repeat",
        metavar="N",
        type=int,
        default=1,
        help="train each declaration N times, under the seeds that follow its own, and tell whether they differ by "
        "more than seeds do: 3, for example (default: %(default)s)",
    )
    add_workdir(parser, "where declarations are trained")
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="where compare.json and compare.html go (default: a new folder next to the first one's runs)",
    )
    parser.add_argument(
        "--require-equal",
        metavar="POINTS",
        type=float,
        help="end with exit code 8 if any two accuracies, in percent, are more than POINTS apart",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the comparison as JSON, and all other output to stderr"
    )
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Finds the candidates, and compares them."""
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.config.paths import check_output, check_workdir
    from tfx_estimator.pipeline.experiments.compare.candidates import FILES, find_candidates

    _check_points(args.require_equal)
    if args.repeat < 1:
        raise DeclarationError(
            f"--repeat {args.repeat}: this is out of range", expected="1 or more", todo="choose 3, for example"
        )
    candidates = find_candidates(args.source, args.overrides, args.vary, args.repeat)
    check_workdir(args.workdir)
    output = check_output(args.output, FILES) if args.output is not None else None

    from tfx_estimator.pipeline.experiments.compare.session import compare

    found, failure = compare(candidates, args.workdir, output, terminal_fd=2 if args.json else 1)
    if args.json:
        # If some candidates failed, this is about the others.
        say(json.dumps(found.to_dict(), indent=2, allow_nan=False))
    if failure is not None:
        raise failure
    require_equal(found.spread, args.require_equal, found.apart)
    return 0


def _check_points(points: Optional[float]) -> None:
    if points is not None and not 0 <= points <= 100:
        raise DeclarationError(
            f"--require-equal {points:g}: this is out of range",
            expected="points of accuracy from 0 to 100: 0.5, for example",
            todo="choose how far apart the accuracies may be",
        )


def require_equal(spread: float, points: Optional[float], apart: str) -> None:
    """Raises NotEqualError if candidates are further apart than a number of percentage points; None is no limit."""
    # The tolerance is for rounding: accuracies are quotients.
    if points is not None and spread > points + 1e-9:
        raise NotEqualError(
            apart,
            expected=f"at most {points:g}, by --require-equal",
            todo="see compare.html: which classes and examples differ",
        )
