"""What Dataflow's workers do with what a job brings, in a process that sees nothing else of this project."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
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


def install(sdist: Path, folder: Path) -> Path:
    """Installs as a worker does, without a network."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps"]
    subprocess.run([*command, "--target", str(folder), str(sdist)], check=True, timeout=120)
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
