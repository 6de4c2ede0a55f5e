"""Examines the installed packages. Standard library only: they may be broken."""

from __future__ import annotations

import glob
import json
import subprocess
from typing import Optional

from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.base.installed import required_by, version_of
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.doctor.machine import FAILED, WARNING, Finding, ok
from tfx_estimator.pipeline.user_source import loader

# With another version of these, nothing has been tried at all.
_DECIDING = ("tfx", "tensorflow", "tensorflow-estimator", "tensorflow-transform", "tensorflow-model-analysis")
_SHOWN = 4
_IMPORT_SECONDS = 180.0
_IMPORT = """\
import json, tensorflow, tfx_estimator
tfx_estimator.bring_back_estimator()
print(json.dumps([tensorflow.__version__, len(tensorflow.config.list_physical_devices("GPU"))]))
"""


def pins() -> list[str]:
    """Returns `name==version` of every package below this one, as the extra of this stack asks for them."""
    # Here, since every verb's module is imported for the help, and this one takes 25 ms to import.
    from importlib import metadata

    from packaging.requirements import Requirement

    try:
        required = metadata.requires("tfx-estimator") or []
    except metadata.PackageNotFoundError as error:
        raise TfxEstimatorError(
            "tfx-estimator is on the path, but not installed",
            expected="an installed wheel, or `make install` in a checkout",
            todo="install it: pip install --no-deps WHEEL",
        ) from error
    extra = {"extra": f"{stacks.current().extra}-locked"}
    asked = map(Requirement, required)
    return [f"{each.name}{each.specifier}" for each in asked if each.marker and each.marker.evaluate(extra)]


def check_versions(tested: Optional[list[str]] = None) -> Finding:
    """The installed versions against those that were tested together: those of `tfx-estimator constraints`."""
    try:
        wanted = dict(pin.split("==", 1) for pin in (pins() if tested is None else tested))
    except TfxEstimatorError as error:
        return Finding("packages", WARNING, error.what, error.todo)
    found = {name: _version(name) for name in wanted}
    needed = required_by(f"tfx-estimator[{stacks.current().extra}]", wanted)
    # The image has none that only notebooks need.
    absent = [name for name in wanted if not found[name] and name not in needed]
    wrong = [name for name in wanted if found[name] != wanted[name] and name not in absent]
    wrong.sort(key=lambda name: (name not in _DECIDING, name))
    if not wrong:
        others = f", {len(absent)} that a pipeline can do without are not installed" if absent else ""
        return ok("packages", f"all {len(wanted) - len(absent)} have the tested versions{others}")
    told = ", ".join(f"{name} {found[name] or 'is missing'} (tested: {wanted[name]})" for name in wrong[:_SHOWN])
    more = f", and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    failed = any(name in _DECIDING for name in wrong)
    todo = "install the tested versions: docs/install.md; `tfx-estimator constraints` lists them"
    return Finding("packages", FAILED if failed else WARNING, f"{told}{more}", todo)


def check_tensorflow() -> list[Finding]:
    """Imports TensorFlow, in a process of its own: it may end it."""
    try:
        done = subprocess.run(
            loader.fresh_python(_IMPORT), capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False
        )
        told = last_line(done.stderr) or f"the process ended with {done.returncode}"
    except subprocess.TimeoutExpired:
        done, told = None, f"it took more than {_IMPORT_SECONDS:g} s"
    if done is None or done.returncode:
        return [Finding("TensorFlow", FAILED, f"cannot be imported: {told}", "install it anew: docs/install.md")]
    version, gpus = json.loads(done.stdout.splitlines()[-1])
    devices = glob.glob("/dev/nvidia[0-9]*")
    if len(devices) > gpus:
        todo = "see CUDA_VISIBLE_DEVICES, or pip install "
        todo += f"tensorflow[and-cuda]=={stacks.current().tensorflow}; without, trainings are on CPUs"
        return [
            ok("TensorFlow", version),
            Finding("devices", WARNING, f"{len(devices)} GPUs, of which TensorFlow sees {gpus}", todo),
        ]
    return [ok("TensorFlow", version), ok("devices", f"{gpus} GPUs" if gpus else "CPUs only")]


def last_line(text: str) -> str:
    """Returns the last line that says something."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _version(name: str) -> str:
    try:
        return version_of(name) or ""
    except Exception as error:  # a damaged dist-info
        return f"is damaged: {error}"
