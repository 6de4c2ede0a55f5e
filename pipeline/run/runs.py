"""Lists the runs of a work folder, with their results and disk usage; imports no TFX."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.report.source import DECLARATION, Run, log_folders, read_run
from tfx_estimator.pipeline.runners.listener import RAN

_BLOCK = 512


@dataclass(frozen=True)
class Listed:
    """One run of a work folder."""

    run: str  # its log folder, by which verbs name it
    name: str  # the pipeline's
    started: Optional[str]  # ISO 8601; like the next four, None without a summary
    stack: Optional[str]
    state: Optional[str]
    accuracy: Optional[float]
    blessed: Optional[bool]
    pushed: bool  # whether its pushed version still exists, which is assumed of one at an address
    bytes: int  # disk usage of its logs and its components' artifacts, even if later runs use these


def list_runs(workdir: str) -> list[Listed]:
    """Returns the runs of all pipelines in a work folder, each pipeline's latest last."""
    return [_listed(logs) for logs in all_logs(workdir)]


def all_logs(workdir: str) -> list[str]:
    """Returns the log folders of all runs in a work folder, whose symbolic links are skipped."""
    if not os.path.isdir(workdir):
        raise DeclarationError(
            f"there is no folder {one_line(workdir)}",
            expected="the --workdir of earlier runs",
            todo="name it: tfx-estimator runs DIR",
        )
    homes = sorted(entry.path for entry in os.scandir(workdir) if entry.is_dir(follow_symlinks=False))
    return [logs for home in homes for logs in log_folders(os.path.join(home, "logs"))]


def read(logs: str) -> Run:
    """Reads a run; a damaged one has only its path."""
    with contextlib.suppress(OSError, ValueError):
        return read_run(logs)
    return Run(os.path.abspath(logs), "")


def pushed_here(run: Run) -> Optional[str]:
    """Returns the folder that the run's own Pusher wrote, if it exists, which is assumed at an address."""
    folder = run.summary.get("pushed")
    ran = any(each["node"] == "Pusher" and each["state"] == RAN for each in _components(run))
    return folder if ran and folder and (is_address(folder) or os.path.isdir(folder)) else None


def executions(run: Run, *states: str) -> set[int]:
    """Returns the ids of its components' executions in ML Metadata, those in the given states if any."""
    found = (each for each in _components(run) if not states or each["state"] in states)
    return {each["execution_id"] for each in found if each["execution_id"]}


def on_disk(paths: Iterable[str]) -> int:
    """Returns the disk usage of files and folders in bytes, without following links."""
    return sum(_BLOCK * os.lstat(each).st_blocks for path in paths for each in _below(path) if os.path.lexists(each))


def _listed(logs: str) -> Listed:
    run = read(logs)
    summary, pushed = run.summary, pushed_here(run)
    stack = summary.get("versions", {}).get("stack", "").partition(":")[0]
    artifacts = os.path.join(glob.escape(run.home), "artifacts", "*", "*")
    made = [path for number in executions(run, RAN) for path in glob.glob(os.path.join(artifacts, str(number)))]
    return Listed(
        run=logs,
        name=run.name,
        started=summary.get("started"),
        stack=stack or None,
        state=summary.get("state"),
        accuracy=summary.get("accuracy"),
        blessed=summary.get("blessed"),
        pushed=pushed is not None,
        bytes=on_disk([logs, *made, *([pushed] if pushed else [])]),
    )


def _components(run: Run) -> list[dict[str, Any]]:
    return run.summary.get("components") or []


def _below(path: str) -> Iterator[str]:
    yield path
    for top, folders, files in os.walk(path):
        yield from (os.path.join(top, name) for name in (*folders, *files))


def find_logs(named: str) -> str:
    """Returns the absolute path of a run's log folder; raises DeclarationError if it is none."""
    logs = os.path.abspath(os.path.expanduser(named))
    if os.path.basename(os.path.dirname(logs)) != "logs" or not os.path.exists(os.path.join(logs, DECLARATION)):
        what = f"{one_line(named)} is not the folder of a run"
    elif leads_out(logs):
        what = f"{one_line(named)} leads out of the work folder by a link"
    else:
        return logs
    raise DeclarationError(
        what,
        expected="RUNS/NAME/logs/TIME, as `tfx-estimator runs` lists it",
        todo="name it so; nothing was removed",
    )


def leads_out(logs: str) -> bool:
    """Returns whether the absolute path of a log folder leads out of its work folder by a link."""
    home = os.path.dirname(os.path.dirname(logs))
    workdir = os.path.realpath(os.path.dirname(home))
    inside = os.path.join(workdir, *(os.path.basename(each) for each in (home, os.path.dirname(logs), logs)))
    return os.path.realpath(logs) != inside
