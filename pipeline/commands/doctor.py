"""`tfx-estimator doctor`: checks what this machine can do, with the standard library only, or the files of runs."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Optional, Union

from tfx_estimator.pipeline.commands.shared import add_workdir

if TYPE_CHECKING:
    from tfx_estimator.pipeline.doctor.machine import Finding

HELP = "check whether this machine can run pipelines, and say how to fix what is missing"
_EPILOG = """\
The exit code is 0 if a pipeline can run here, else 1. Warnings, of features that will not work, do not change it.
With --runs it is 1 if a file is damaged.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("--quick", action="store_true", help="leave out the training of some steps in two processes")
    parser.add_argument(
        "--runs", action="store_true", help="compare the files of all runs with their checksums instead"
    )
    parser.add_argument(
        "--beam",
        metavar="DECLARATION",
        help="check the engine of a declaration's section `beam` instead: Java, jar, addresses",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_workdir(parser, "where results are, or will go")
    parser.add_argument("--data-dir", metavar="DIR", help="where data sets are kept (default: TFDS's)")


def run(args: argparse.Namespace) -> int:
    """Examines the machine, and prints each finding."""
    from tfx_estimator.pipeline.base.text import one_line
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.doctor.machine import FAILED

    findings: Iterator[Finding]
    if args.runs:
        from tfx_estimator.pipeline.doctor.artifacts import check_runs

        findings = check_runs(args.workdir)
    elif args.beam:
        from tfx_estimator.pipeline.config import load
        from tfx_estimator.pipeline.doctor.engine import check_engine

        findings = check_engine(load(args.beam).declaration.beam)
    else:
        findings = examine(args.workdir, args.data_dir, args.quick)
    found = []
    for finding in findings:
        found.append(finding)
        if not args.json:
            say(one_line(f"{finding.state:<8} {finding.name:<16} {finding.what}"))
            if finding.todo:
                say(one_line(f"{'':<25} to do: {finding.todo}"))
    failed = [finding.name for finding in found if finding.state == FAILED]
    if args.json:
        say(json.dumps({"ok": not failed, "findings": [asdict(each) for each in found]}, indent=2))
    elif args.beam:
        say(
            f"the engine cannot be used from here: {', '.join(failed)}"
            if failed
            else "the engine can be used from here"
        )
    elif not args.runs:
        say(f"pipelines cannot run here: {', '.join(failed)}" if failed else "pipelines can run here")
    return int(bool(failed))


def examine(workdir: str, data_dir: Optional[str] = None, quick: bool = False) -> Iterator[Finding]:
    """Examines this machine; without `data_dir`, TFDS's default folder."""
    from tfx_estimator.pipeline.doctor import machine, training

    checks: dict[str, Callable[[], Union[Finding, list[Finding]]]] = {
        "stack": machine.check_stack,
        "Python": machine.check_python,
        "platform": machine.check_platform,
        "packages": machine.check_versions,
        "cores": machine.check_cores,
        "memory": machine.check_memory,
        "shared memory": machine.check_shared_memory,
        "work folder": lambda: machine.check_folder("work folder", workdir, "--workdir"),
        "temporary": lambda: machine.check_folder("temporary", tempfile.gettempdir(), "TMPDIR"),
        "data sets": lambda: machine.check_data_dir(data_dir),
        "private network": machine.check_private_network,
        "TensorFlow": machine.check_tensorflow,
        **({} if quick else {"training": training.check_training}),
    }
    for name, check in checks.items():
        try:
            found = check()
        except Exception as error:  # no error must end the examination
            todo = "see the findings above; if this machine is not the cause, report it"
            what = f"cannot be examined: {type(error).__name__}: {error}"
            found = machine.Finding(name, machine.FAILED, what, todo)
        yield from found if isinstance(found, list) else [found]
