"""All examinations, one after the other; none of them can end with a traceback. Standard library only."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from typing import Optional, Union

from tfx_estimator.pipeline.doctor import machine, network, packages, training
from tfx_estimator.pipeline.doctor.finding import FAILED, Finding

_Check = Callable[[], Union[Finding, list[Finding]]]


def examine(workdir: str, data_dir: Optional[str] = None, quick: bool = False) -> Iterator[Finding]:
    """Examines this machine.

    Args:
        data_dir: Of TFDS; None is TFDS's own.
    """
    checks: list[tuple[str, _Check]] = [
        ("stack", machine.check_stack),
        ("Python", machine.check_python),
        ("platform", machine.check_platform),
        ("packages", packages.check_versions),
        ("cores", machine.check_cores),
        ("memory", machine.check_memory),
        ("shared memory", machine.check_shared_memory),
        ("work folder", functools.partial(machine.check_folder, "work folder", workdir, "--workdir")),
        ("temporary", functools.partial(machine.check_folder, "temporary", _temporary(), "TMPDIR")),
        ("data sets", functools.partial(machine.check_data_dir, data_dir)),
        ("private network", network.check_private_network),
        ("localhost", network.check_ports),
        ("TensorFlow", packages.check_tensorflow),
    ]
    if not quick:
        checks.append(("training", training.check_training))
    for name, check in checks:
        yield from run(name, check)


def run(name: str, check: _Check) -> list[Finding]:
    """Runs a check; an error that it did not expect is a finding as well."""
    try:
        found = check()
    except Exception as error:
        todo = "see what is said above; if it is no fault of this machine, report it"
        return [Finding(name, FAILED, f"cannot be examined: {type(error).__name__}: {error}", todo)]
    return found if isinstance(found, list) else [found]


def _temporary() -> str:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:  # none of all that it tries can be written
        return "/tmp"
