"""What Dataflow's workers do with what a job brings, in a process that sees nothing else of this project."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

# Imports nothing but what was staged and the packages that it requires: the checkout is on the path of this environment
# by a .pth file, which `-S` leaves out.
THERE = """
import sys
staged, packages, *files = sys.argv[1:]
sys.path[:0] = [staged]
sys.path.append(packages)
import tfx_estimator
assert tfx_estimator.__file__.startswith(staged), tfx_estimator.__file__
from apache_beam import Pipeline
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

for file in files:
    proto = beam_runner_api_pb2.Pipeline()
    proto.ParseFromString(open(file, "rb").read())
    pipeline = Pipeline.from_runner_api(proto, FnApiRunner(), PipelineOptions([]))
    pipeline.to_runner_api()
    print(len(proto.components.transforms))
"""


def install(sdist: Path, folder: Path, experiments: Iterable[str]) -> Path:
    """Installs as a worker does, which reaches no index of packages.

    Beam's boot asks pip for no isolation where the job has the experiment, and then only; it installs twice: by force,
    then what the package requires. Source: https://github.com/apache/beam/pull/37331, and `pipInstallPackage` in
    https://github.com/apache/beam/blob/master/sdks/python/container/piputil.go.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check"]
    command += ["--no-build-isolation"] if "pip_no_build_isolation" in experiments else []
    environment = {**_without_paths(), "PIP_NO_INDEX": "1"}
    for more in (["--upgrade", "--force-reinstall", "--no-deps"], ["--upgrade"]):
        done = subprocess.run(
            [*command, *more, "--target", str(folder), str(sdist)],
            capture_output=True,
            text=True,
            timeout=120,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return folder


def unpickle_there(staged: Path, *files: Path) -> list[int]:
    command = [sys.executable, "-S", "-c", THERE, str(staged), sysconfig.get_path("purelib"), *map(str, files)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, cwd=staged.parent, env=_without_paths(), check=False
    )
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


def _without_paths() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
