"""`tfx-estimator doctor`: what this machine can do. Standard library only."""

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

HELP = "say what this machine can do, and what to do about what it cannot"
_EPILOG = """\
The exit code is 0 if a run can be done here, else 1. A warning does not change it, and says what else will not work.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("--quick", action="store_true", help="leave out the training of some steps in two processes")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_workdir(parser, "where results will go")
    parser.add_argument("--data-dir", metavar="DIR", help="where data sets are kept (default: as TFDS has it)")


def run(args: argparse.Namespace) -> int:
    """Examines, and prints a line for each finding."""
    from tfx_estimator.pipeline.base.text import one_line
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.doctor.machine import FAILED

    found = []
    for finding in examine(args.workdir, args.data_dir, args.quick):
        found.append(finding)
        if not args.json:
            say(one_line(f"{finding.state:<8} {finding.name:<16} {finding.what}"))
            if finding.todo:
                say(one_line(f"{'':<25} to do: {finding.todo}"))
    failed = [finding.name for finding in found if finding.state == FAILED]
    if args.json:
        say(json.dumps({"ok": not failed, "findings": [asdict(each) for each in found]}, indent=2))
    else:
        say(f"a run cannot be done here: {', '.join(failed)}" if failed else "a run can be done here")
    return int(bool(failed))


def examine(workdir: str, data_dir: Optional[str] = None, quick: bool = False) -> Iterator[Finding]:
    """Examines this machine; the data sets are TFDS's own where no folder is named."""
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
        "localhost": machine.check_ports,
        "TensorFlow": machine.check_tensorflow,
        **({} if quick else {"training": training.check_training}),
    }
    for name, check in checks.items():
        try:
            found = check()
        except Exception as error:  # whatever is broken here must not end the examination
            todo = "see what is said above; if it is no fault of this machine, report it"
            what = f"cannot be examined: {type(error).__name__}: {error}"
            found = machine.Finding(name, machine.FAILED, what, todo)
        yield from found if isinstance(found, list) else [found]
