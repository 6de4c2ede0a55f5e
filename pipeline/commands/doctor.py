"""`tfx-estimator doctor`: what this machine can do. Standard library only."""

from __future__ import annotations

import argparse
import json
import os
import sys

HELP = "say what this machine can do, and what to do about what it cannot"
_EPILOG = """\
Ends with 0 if a run can be done here, with 1 if not. A warning is no reason for that: it tells what else will not work.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("--quick", action="store_true", help="leave out the training of some steps in two processes")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--workdir",
        metavar="DIR",
        type=os.path.expanduser,
        default="runs",
        help="where results will go (default: %(default)s)",
    )
    parser.add_argument("--data-dir", metavar="DIR", help="where data sets are kept (default: as TFDS has it)")


def run(args: argparse.Namespace) -> int:
    """Examines, and prints a line for each finding."""
    from tfx_estimator.pipeline.doctor.examine import examine
    from tfx_estimator.pipeline.doctor.finding import FAILED

    found = []
    for finding in examine(args.workdir, args.data_dir, args.quick):
        found.append(finding)
        if not args.json:
            _say(f"{finding.state:<8} {finding.name:<16} {finding.what}")
            if finding.todo:
                _say(f"{'':<25} to do: {finding.todo}")
    failed = [finding.name for finding in found if finding.state == FAILED]
    if args.json:
        from tfx_estimator.pipeline.base.writing import printing

        with printing("stdout"):
            sys.stdout.write(
                json.dumps({"ok": not failed, "findings": [each.to_dict() for each in found]}, indent=2) + "\n"
            )
            sys.stdout.flush()
    else:
        _say(f"a run cannot be done here: {', '.join(failed)}" if failed else "a run can be done here")
    return int(bool(failed))


def _say(text: str) -> None:
    """Prints a line at once; what the other verbs print by needs packages that may be broken."""
    from tfx_estimator.pipeline.base.text import one_line
    from tfx_estimator.pipeline.base.writing import printing

    with printing("stdout"):
        sys.stdout.write(f"{one_line(text)}\n")
        sys.stdout.flush()
