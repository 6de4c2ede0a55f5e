"""What Dataflow's workers do with what a job brings, in a process that sees nothing else of this project."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable
from pathlib import Path

from tests.root import run_python

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
    command = ["-m", "pip", "install", "-q", "--no-cache-dir", "--disable-pip-version-check", "--target", str(folder)]
    command += ["--no-build-isolation"] if "pip_no_build_isolation" in experiments else []
    for more in (["--upgrade", "--force-reinstall", "--no-deps"], ["--upgrade"]):
        run_python(*command, *more, str(sdist), code=0, PYTHONPATH="", PIP_NO_INDEX="1")
    return folder


def unpickle_there(staged: Path, *files: Path) -> list[int]:
    words = ("-S", "-c", THERE, str(staged), sysconfig.get_path("purelib"), *map(str, files))
    done = run_python(*words, cwd=staged.parent, code=0, PYTHONPATH="")
    return [int(line) for line in done.stdout.split()]
