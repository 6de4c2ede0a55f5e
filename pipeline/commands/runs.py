"""`tfx-estimator runs`: lists the runs of a work folder; `runs rm` removes runs."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
from typing import Optional

HELP = "list the runs of a work folder, or remove some"
_EPILOG = """\
  tfx-estimator runs                                   those in ./runs
  tfx-estimator runs DIR --json
  tfx-estimator runs rm runs/mnist/logs/TIME1 runs/mnist/logs/TIME2
  tfx-estimator runs rm --unneeded                     all in ./runs that may be removed

A run whose model is pushed, or is the latest blessed one, is not removed. Artifacts that other runs use stay.
"""
_UNNEEDED = "tfx-estimator runs rm --unneeded [WORKDIR]"
_REMOVE, _WORKDIR = "rm", "runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument(
        "words",
        metavar="WORKDIR | rm RUN…",
        nargs="*",
        help="the folder of all runs (default: runs); or `rm`, and the runs to remove, as they are listed",
    )
    parser.add_argument(
        "--unneeded",
        metavar="WORKDIR",
        nargs="?",
        const=_WORKDIR,
        help="with `rm`: remove all runs of the folder but those whose model is pushed, or is the latest blessed one "
        "(default: %(const)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the list as JSON, sizes in bytes")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Lists runs, or removes them."""
    if args.words[:1] == [_REMOVE]:
        return _remove(args.words[1:], args.unneeded)
    from tfx_estimator.pipeline.base.errors import DeclarationError
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.config.paths import reject_address
    from tfx_estimator.pipeline.run.runs import list_runs

    if args.unneeded is not None:
        raise DeclarationError("--unneeded: there is nothing to remove", expected="`rm` before it", todo=_UNNEEDED)
    if len(args.words) > 1:
        raise DeclarationError(
            f"runs {' '.join(args.words)}: these are several folders",
            expected="one work folder; or `rm`, and runs",
            todo="list them one by one",
        )
    workdir = os.path.expanduser(args.words[0] if args.words else _WORKDIR)
    reject_address(workdir, "WORKDIR")
    found = list_runs(workdir)
    if args.json:
        say(json.dumps([dataclasses.asdict(each) for each in found], indent=2, allow_nan=False))
        return 0
    from tfx_estimator.pipeline.base.text import one_line
    from tfx_estimator.pipeline.experiments.estimate import size

    words = {True: "yes", False: "no", None: "—"}
    rows = [("run", "started", "stack", "state", "accuracy", "blessed", "pushed", "size")]
    for each in found:
        started = (each.started or "—").replace("T", " ")[:16]
        accuracy = "—" if each.accuracy is None else f"{each.accuracy:.4f}"
        marks = words[each.blessed], words[each.pushed]
        facts = (started, each.stack or "—", each.state or "—", accuracy, *marks, size(each.bytes))
        rows.append((one_line(each.run), *facts))
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        say("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)).rstrip())
    return 0


def _remove(named: list[str], workdir: Optional[str]) -> int:
    from tfx_estimator.pipeline.base.errors import DeclarationError
    from tfx_estimator.pipeline.base.text import one_line
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.config.paths import reject_address
    from tfx_estimator.pipeline.experiments.estimate import size
    from tfx_estimator.pipeline.run.runs import all_logs, find_logs, leads_out

    if (workdir is None) != bool(named):
        what = f"--unneeded, and {one_line(named[0])} as well" if named else "no run is named"
        raise DeclarationError(
            f"runs rm: {what}", expected="runs, or --unneeded", todo=f"list them: tfx-estimator runs; or {_UNNEEDED}"
        )
    for each in [*named, *([workdir] if workdir else [])]:
        reject_address(each, "WORKDIR" if workdir else "RUN")
    if workdir:
        found = map(os.path.abspath, all_logs(os.path.expanduser(workdir)))
        logs = sorted(each for each in found if not leads_out(each))
    else:
        logs = sorted({find_logs(each) for each in named})

    from tfx_estimator.pipeline.run.removal import find_unneeded, remove

    groups = [list(group) for _, group in itertools.groupby(logs, os.path.dirname)]
    if workdir:
        groups = [unneeded for group in groups if (unneeded := find_unneeded(group))]
        for each in itertools.chain(*groups):
            say(one_line(each))
    for group in groups:
        freed = remove(group)
        say(f"removed {len(group)} of {os.path.dirname(os.path.dirname(group[0]))}: {size(freed)}")
    if not groups:
        say("no run may be removed")
    return 0
