"""Checks the machine and its packages. Imports only the standard library: all else may be broken."""

from __future__ import annotations

import glob
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Optional

from tfx_estimator.components.trainer.cluster.private_network import NoPrivateNetworkError, PrivateNetwork
from tfx_estimator.pipeline.base.cpus import cpu_quota
from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.base.installed import install_command, required_by, version_of
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.user_source import loader

OK, WARNING, FAILED = "ok", "warning", "failed"
_MIB = 1 << 20
_GIB = 1 << 30
# Memory of a cluster's task, mostly TensorFlow's.
_TASK_BYTES = 600 * _MIB
# Disk space of a run of the smallest preset, with checkpoints and artifacts.
_RUN_BYTES = 200 * _MIB
# Docker's default; NCCL between two GPUs needs more.
_SHM_BYTES = 64 * _MIB
# cgroups v2 and v1: files of limit, usage and statistics; and the statistic of memory that can be reclaimed at once.
_V2, _V1 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/memory"
_CONTAINERS = (
    (f"{_V2}.max", f"{_V2}.current", f"{_V2}.stat", "inactive_file"),
    (f"{_V1}.limit_in_bytes", f"{_V1}.usage_in_bytes", f"{_V1}.stat", "total_inactive_file"),
)
# Nothing is tested with other versions of these.
_DECIDING = ("tfx", "tensorflow", "tensorflow-estimator", "tensorflow-transform", "tensorflow-model-analysis")
_SHOWN = 4
_IMPORT_SECONDS = 180.0
_IMPORT = """\
import json, tensorflow, tfx_estimator
tfx_estimator.bring_back_estimator()
print(json.dumps([tensorflow.__version__, len(tensorflow.config.list_physical_devices("GPU"))]))
"""


@dataclass(frozen=True)
class Finding:
    """The result of one check, in one line."""

    name: str
    state: str  # `ok`; `warning` if pipelines run, but some feature does not work; `failed` if they do not run
    what: str
    todo: str = ""  # empty if ok


def ok(name: str, what: str) -> Finding:
    """Returns a finding in state `ok`."""
    return Finding(name, OK, what)


def check_stack() -> Finding:
    """Names the stack of package versions."""
    return ok("stack", stacks.current().words + ("" if stacks.installed() else ", which is not installed"))


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    """Checks that all of the stack's packages have wheels for this Python."""
    text, stack = ".".join(map(str, version)), stacks.current()
    if stack.has_python(version):
        return ok("Python", f"{text}, {sys.executable}")
    expected = f"{text}, expected {stack.python_words}"
    return Finding("Python", FAILED, expected, "make an environment with that version: docs/install.md")


def check_platform() -> Finding:
    """Checks the platform of TFX's wheels: Linux on x86-64, with glibc."""
    system, machine, (name, version) = platform.system(), platform.machine(), platform.libc_ver()
    text = f"{system} {machine}, {name or 'no glibc'} {version}".rstrip()
    if system == "Linux" and machine == "x86_64" and name == "glibc" and stacks.current().has_glibc(version):
        return ok("platform", text)
    todo, wanted = "use such a machine, or a container of one", ".".join(map(str, stacks.current().glibc))
    return Finding("platform", FAILED, f"{text}, expected Linux on x86_64 with glibc {wanted} or newer", todo)


def check_cores() -> Finding:
    """Checks the logical CPUs that this process may use."""
    count = len(os.sched_getaffinity(0))
    share = quota if (quota := cpu_quota()) is not None else count
    text = f"{count} logical CPUs" + (f", of which the container may use {share:.1f}" if share < count else "")
    if min(count, share) >= 2:
        return ok("cores", text)
    return Finding("cores", WARNING, text, "train on one_device: replicas would take turns")


def check_memory() -> Finding:
    """Checks the free memory, of the machine and the container."""
    lines = dict(line.split(":", 1) for line in _read("/proc/meminfo").splitlines() if ":" in line)
    free, total = (int(lines.get(name, "0 kB").split()[0]) * 1024 for name in ("MemAvailable", "MemTotal"))
    for limit_file, used_file, stat_file, cache_name in _CONTAINERS:
        limit, used = _read(limit_file), _read(used_file)
        # Without a limit, v1 has a number larger than any machine's memory.
        if limit.isdigit() and used.isdigit() and int(limit) < total:
            # The kernel reclaims the inactive page cache on demand.
            stat = dict(line.split(" ", 1) for line in _read(stat_file).splitlines() if " " in line)
            spare = max(int(limit) - int(used) + int(stat.get(cache_name, "0")), 0)
            free, total = min(free, spare), int(limit)
    text = f"{free / _GIB:.1f} GiB free of {total / _GIB:.1f}"
    if free >= 4 * _TASK_BYTES:
        return ok("memory", text)
    state = WARNING if free >= 2 * _TASK_BYTES else FAILED
    return Finding("memory", state, text, f"end other programs; a training task takes {_TASK_BYTES // _MIB} MiB")


def check_shared_memory(path: str = "/dev/shm") -> Finding:
    """Checks the shared memory that NCCL and multiprocessing use."""
    todo = "mount a tmpfs there (docker run --shm-size=1g): several GPUs, and Python's multiprocessing, need it"
    if reason := _not_writable(path):
        return Finding("shared memory", WARNING, f"{path}: {reason}", todo)
    free = shutil.disk_usage(path).free
    text = f"{path}, {free / _MIB:,.0f} MiB free"
    return ok("shared memory", text) if free >= _SHM_BYTES else Finding("shared memory", WARNING, text, todo)


def check_folder(name: str, path: str, option: str) -> Finding:
    """Checks that a folder exists or can be made, with space for a run."""
    place = os.path.abspath(path)
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if reason := _not_writable(place):
        return Finding(name, FAILED, f"{path}: {place} {reason}", f"make it writable, or name another one: {option}")
    todo = f"free some space, or name another one: {option}"
    free = shutil.disk_usage(place).free
    text = f"{os.path.abspath(path)}, {free / _GIB:.1f} GiB free"
    if free >= _GIB:
        return ok(name, text)
    return Finding(name, WARNING if free >= _RUN_BYTES else FAILED, text, todo)


def check_data_dir(path: Optional[str] = None) -> Finding:
    """Checks the folder of TFDS's data sets; None is TFDS_DATA_DIR, or TFDS's default."""
    named = path or os.environ.get("TFDS_DATA_DIR")
    place = os.path.abspath(os.path.expanduser(named or os.path.join("~", "tensorflow_datasets")))
    if os.path.isdir(place):
        names = sorted(entry.name for entry in os.scandir(place) if entry.is_dir() and entry.name != "downloads")
        return ok("data sets", f"{place}: {', '.join(names[:8]) or 'none yet'}{' …' if len(names) > 8 else ''}")
    todo = "nothing for digits, cancer and diabetes; other presets download their data there, or name data.data_dir"
    return Finding("data sets", FAILED if path else WARNING, f"{place} does not exist", todo)


def check_private_network() -> Finding:
    """Checks that this process can make the private network that clusters on this machine use by default."""
    try:
        with PrivateNetwork():
            return ok("private network", "available to clusters on this machine")
    except NoPrivateNetworkError as error:
        todo = "for clusters set trainer.distribution.network=host where you trust the network: docs/network.md"
        return Finding("private network", WARNING, str(error), todo)


def pins() -> list[str]:
    """Returns `name==version` of every dependency, from the stack's locked extra."""
    # Imported here, since `--help` imports every verb's module, and importlib.metadata takes 25 ms.
    from importlib import metadata

    from packaging.requirements import Requirement

    try:
        required = metadata.requires("tfx-estimator") or []
    except metadata.PackageNotFoundError as error:
        raise TfxEstimatorError(
            "tfx-estimator is on the path, but not installed",
            expected="an installed wheel, or `make install` in a checkout",
            todo=f"install it: {install_command(stacks.current().extra)}",
        ) from error
    extra = {"extra": f"{stacks.current().extra}-locked"}
    requirements = map(Requirement, required)
    return [f"{each.name}{each.specifier}" for each in requirements if each.marker and each.marker.evaluate(extra)]


def check_versions(tested: Optional[list[str]] = None) -> Finding:
    """Compares the installed versions with the tested ones, those of `tfx-estimator constraints`."""
    try:
        wanted = dict(pin.split("==", 1) for pin in (pins() if tested is None else tested))
    except TfxEstimatorError as error:
        return Finding("packages", WARNING, error.what, error.todo)
    found = {name: version_of(name) or "" for name in wanted}
    needed = required_by(f"tfx-estimator[{stacks.current().extra}]", wanted)
    # The image lacks the packages that only notebooks need.
    absent = [name for name in wanted if not found[name] and name not in needed]
    wrong = [name for name in wanted if found[name] != wanted[name] and name not in absent]
    wrong.sort(key=lambda name: (name not in _DECIDING, name))
    if not wrong:
        others = f", {len(absent)} optional ones are not installed" if absent else ""
        return ok("packages", f"all {len(wanted) - len(absent)} have the tested versions{others}")
    shown = ", ".join(f"{name} {found[name] or 'is missing'} (tested: {wanted[name]})" for name in wrong[:_SHOWN])
    more = f", and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    failed = any(name in _DECIDING for name in wrong)
    todo = "install the tested versions: docs/install.md; `tfx-estimator constraints` lists them"
    return Finding("packages", FAILED if failed else WARNING, f"{shown}{more}", todo)


def check_tensorflow() -> list[Finding]:
    """Imports TensorFlow in a subprocess, since it may crash."""
    words = loader.fresh_python(_IMPORT)
    done = subprocess.run(words, capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        reason = lines[-1] if lines else f"the process ended with {done.returncode}"
        return [Finding("TensorFlow", FAILED, f"cannot be imported: {reason}", "reinstall it: docs/install.md")]
    version, gpus = json.loads(done.stdout.splitlines()[-1])
    found = ok("devices", f"{gpus} GPUs" if gpus else "CPUs only")
    if (there := len(glob.glob("/dev/nvidia[0-9]*"))) > gpus:
        todo = "check CUDA_VISIBLE_DEVICES, or pip install "
        todo += f"tensorflow[and-cuda]=={stacks.current().tensorflow}; otherwise training runs on CPUs"
        found = Finding("devices", WARNING, f"{there} GPUs, of which TensorFlow sees {gpus}", todo)
    return [ok("TensorFlow", version), found]


def _not_writable(folder: str) -> str:
    """Returns why no file can be written into a folder; empty if one can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0" * 4096)
    except OSError as error:
        return f"cannot be written: {error.strerror}"
    return ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
