"""`tfx-estimator runs`: the runs of a work folder; and `runs rm`, which removes some."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os

HELP = "list the runs of a work folder, or remove some"
_EPILOG = """\
  tfx-estimator runs                                   those in ./runs
  tfx-estimator runs DIR --json
  tfx-estimator runs rm runs/mnist/logs/TIME1 runs/mnist/logs/TIME2

A run is not removed whose model is pushed, or is the latest that was blessed. What other runs have taken from it stays.
"""
_REMOVE = "rm"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument(
        "words",
        metavar="WORKDIR | rm RUN…",
        nargs="*",
        help="the folder of all runs (default: runs); or `rm`, and the runs to remove, as they are listed",
    )
    parser.add_argument("--json", action="store_true", help="print the list as JSON, sizes in bytes")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Lists, or removes."""
    if args.words[:1] == [_REMOVE]:
        return _remove(args.words[1:])
    from tfx_estimator.pipeline.base.errors import DeclarationError
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.config.paths import reject_address
    from tfx_estimator.pipeline.run.runs import list_runs

    if len(args.words) > 1:
        raise DeclarationError(
            f"runs {' '.join(args.words)}: this names several folders",
            expected="one work folder; or `rm`, and runs",
            todo="list one after the other",
        )
    workdir = os.path.expanduser(args.words[0] if args.words else "runs")
    reject_address(workdir, "WORKDIR")
    found = list_runs(workdir)
    if args.json:
        say(json.dumps([dataclasses.asdict(each) for each in found], indent=2, allow_nan=False))
        return 0
    from tfx_estimator.pipeline.base.text import one_line
    from tfx_estimator.pipeline.experiments.estimate import size

    says = {True: "yes", False: "no", None: "—"}
    rows = [("run", "started", "stack", "state", "accuracy", "blessed", "pushed", "size")]
    for each in found:
        started = (each.started or "—").replace("T", " ")[:16]
        accuracy = "—" if each.accuracy is None else f"{each.accuracy:.4f}"
        marks = says[each.blessed], says[each.pushed]
        facts = (started, each.stack or "—", each.state or "—", accuracy, *marks, size(each.bytes))
        rows.append((one_line(each.run), *facts))
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        say("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)).rstrip())
    return 0


def _remove(named: list[str]) -> int:
    from tfx_estimator.pipeline.base.errors import DeclarationError
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.config.paths import reject_address
    from tfx_estimator.pipeline.experiments.estimate import size
    from tfx_estimator.pipeline.run.runs import find_logs

    if not named:
        raise DeclarationError("runs rm: no run is named", expected="runs", todo="list them: tfx-estimator runs")
    for each in named:
        reject_address(each, "RUN")
    logs = sorted({find_logs(each) for each in named})

    from tfx_estimator.pipeline.run.removal import remove

    for _, group in itertools.groupby(logs, os.path.dirname):
        several = list(group)
        freed = remove(several)
        say(f"removed {len(several)} of {os.path.dirname(os.path.dirname(several[0]))}: {size(freed)}")
    return 0
