"""`tfx-estimator report`: makes the report of an earlier run, or one page of several runs side by side."""

from __future__ import annotations

import argparse
import os

HELP = "make the report of an earlier run, or one page of several runs side by side"
EPILOG = """\
  tfx-estimator report runs/mnist                                 the latest run of a pipeline
  tfx-estimator report runs/mnist/logs/TIME1 runs/mnist/logs/TIME2    two runs side by side
"""
_FILE = "report.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="a run's log folder, or a pipeline's folder: its latest run"
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help=f"the page to write; replaces an existing one (default: {_FILE} in the run's log folder, for several "
        "runs in the current folder)",
    )
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    """Finds the runs, and makes the page."""
    from tfx_estimator.pipeline.base.errors import TfxEstimatorError
    from tfx_estimator.pipeline.base.files import writing
    from tfx_estimator.pipeline.base.text import one_line
    from tfx_estimator.pipeline.commands.shared import check_file, say
    from tfx_estimator.pipeline.report.source import find_runs

    if args.output is not None:
        check_file(args.output, force=True)
    runs = find_runs(args.runs)
    several = len(runs) > 1
    output = os.path.expanduser(args.output or (_FILE if several else os.path.join(runs[0].logs, _FILE)))

    from tfx_estimator.pipeline.run.terminal import quiet

    # Hides what TensorFlow prints while it loads a model.
    with quiet(os.devnull), writing(output):
        try:
            if several:
                from tfx_estimator.pipeline.experiments.side_by_side import write_comparison

                write_comparison(runs, output)
            else:
                from tfx_estimator.pipeline.report.report import write_report

                write_report(runs[0], output)
        except (OSError, TfxEstimatorError):
            raise
        except Exception as error:  # from files that were edited
            raise TfxEstimatorError(
                f"the report could not be made: {type(error).__name__}: {error}",
                expected="the files of a run as it left them",
                todo="run the pipeline again",
            ) from error
    say(f"wrote {one_line(output)}")
    return 0
