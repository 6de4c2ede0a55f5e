"""Examines the machine and its packages. Standard library only: all else may be broken."""

from __future__ import annotations

import glob
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Optional

from tfx_estimator.components.trainer.cluster.plan import free_ports
from tfx_estimator.components.trainer.cluster.private_network import NoPrivateNetworkError, PrivateNetwork
from tfx_estimator.pipeline.base.cpus import cpu_quota
from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.base.installed import required_by, version_of
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.user_source import loader

OK, WARNING, FAILED = "ok", "warning", "failed"
_MIB = 1 << 20
_GIB = 1 << 30
_PORT_SECONDS = 5.0
# A task of a cluster takes about this much, most of it TensorFlow.
_TASK_BYTES = 600 * _MIB
# A run of the smallest preset, its checkpoints and its artifacts included.
_RUN_BYTES = 200 * _MIB
# Docker's default, of which NCCL between two GPUs needs more.
_SHM_BYTES = 64 * _MIB
# Of cgroups v2 and v1: files of the limit, of what is used, of its parts; and the name of what can be had back at once.
_V2, _V1 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/memory"
_CONTAINERS = (
    (f"{_V2}.max", f"{_V2}.current", f"{_V2}.stat", "inactive_file"),
    (f"{_V1}.limit_in_bytes", f"{_V1}.usage_in_bytes", f"{_V1}.stat", "total_inactive_file"),
)
# With another version of these, nothing has been tried at all.
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
    """What an examination found, in one line."""

    name: str  # what was looked at
    state: str  # `ok`; `warning`, if a run works, but not all that it may be told; `failed`, if none does
    what: str
    todo: str = ""  # what to do about it; nothing if it is ok


def ok(name: str, what: str) -> Finding:
    """Returns a finding that is as it should be."""
    return Finding(name, OK, what)


def check_stack() -> Finding:
    """Which of the sets of versions that were tested together this is, or is to be."""
    return ok("stack", stacks.current().words + ("" if stacks.installed() else ", which is not installed"))


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    """Each stack is for some versions, which all its packages have wheels for."""
    text, stack = ".".join(map(str, version)), stacks.current()
    if stack.has_python(version):
        return ok("Python", f"{text}, {sys.executable}")
    expected = f"{text}, expected {stack.python_words}"
    return Finding("Python", FAILED, expected, "make an environment with such a Python: docs/install.md")


def check_platform() -> Finding:
    """TFX's wheels are for Linux on x86-64, with glibc."""
    system, machine, (name, version) = platform.system(), platform.machine(), platform.libc_ver()
    text = f"{system} {machine}, {name or 'no glibc'} {version}".rstrip()
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    if system == "Linux" and machine == "x86_64" and name == "glibc" and numbers >= stacks.current().glibc:
        return ok("platform", text)
    todo, wanted = "use such a machine, or a container of one", ".".join(map(str, stacks.current().glibc))
    return Finding("platform", FAILED, f"{text}, expected Linux on x86_64 with glibc {wanted} or newer", todo)


def check_cores() -> Finding:
    """Logical CPUs that this process may use."""
    count = len(os.sched_getaffinity(0))
    share = quota if (quota := cpu_quota()) is not None else count
    text = f"{count} logical CPUs" + (f", of which the container may use {share:.1f}" if share < count else "")
    if min(count, share) >= 2:
        return ok("cores", text)
    return Finding("cores", WARNING, text, "train on one_device: replicas would take turns")


def check_memory() -> Finding:
    """Memory that is free, here and in the container."""
    lines = dict(line.split(":", 1) for line in _read("/proc/meminfo").splitlines() if ":" in line)
    free, total = (int(lines.get(name, "0 kB").split()[0]) * 1024 for name in ("MemAvailable", "MemTotal"))
    for limit_file, used_file, stat_file, cache_name in _CONTAINERS:
        limit, used = _read(limit_file), _read(used_file)
        # Without a limit, v1 says more than any machine has.
        if limit.isdigit() and used.isdigit() and int(limit) < total:
            # The kernel gives the cache of files that nobody reads now to who asks for memory.
            stat = dict(line.split(" ", 1) for line in _read(stat_file).splitlines() if " " in line)
            spare = max(int(limit) - int(used) + int(stat.get(cache_name, "0")), 0)
            free, total = min(free, spare), int(limit)
    text = f"{free / _GIB:.1f} GiB free of {total / _GIB:.1f}"
    if free >= 4 * _TASK_BYTES:
        return ok("memory", text)
    state = WARNING if free >= 2 * _TASK_BYTES else FAILED
    return Finding("memory", state, text, f"end other programs; a task of a training takes {_TASK_BYTES // _MIB} MiB")


def check_shared_memory(path: str = "/dev/shm") -> Finding:
    """Memory that processes share, which NCCL and multiprocessing use."""
    todo = "mount a tmpfs there (docker run --shm-size=1g): several GPUs, and Python's multiprocessing, need it"
    if reason := _not_writable(path):
        return Finding("shared memory", WARNING, f"{path}: {reason}", todo)
    free = shutil.disk_usage(path).free
    text = f"{path}, {free / _MIB:,.0f} MiB free"
    return ok("shared memory", text) if free >= _SHM_BYTES else Finding("shared memory", WARNING, text, todo)


def check_folder(name: str, path: str, option: str) -> Finding:
    """A folder that must be there, or that can be made, with room for a run."""
    place = os.path.abspath(path)
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if reason := _not_writable(place):
        return Finding(name, FAILED, f"{path}: {place} {reason}", f"let it be written, or name another one: {option}")
    todo = f"make room, or name another one: {option}"
    free = shutil.disk_usage(place).free
    text = f"{os.path.abspath(path)}, {free / _GIB:.1f} GiB free"
    if free >= _GIB:
        return ok(name, text)
    return Finding(name, WARNING if free >= _RUN_BYTES else FAILED, text, todo)


def check_data_dir(path: Optional[str] = None) -> Finding:
    """Where data sets of TFDS are kept; None is TFDS_DATA_DIR, or TFDS's own."""
    named = path or os.environ.get("TFDS_DATA_DIR")
    place = os.path.abspath(os.path.expanduser(named or os.path.join("~", "tensorflow_datasets")))
    if os.path.isdir(place):
        names = sorted(entry.name for entry in os.scandir(place) if entry.is_dir() and entry.name != "downloads")
        return ok("data sets", f"{place}: {', '.join(names[:8]) or 'none yet'}{' …' if len(names) > 8 else ''}")
    todo = "nothing for the preset digits; else a run fetches its data there, or name a folder: data.data_dir"
    return Finding("data sets", FAILED if path else WARNING, f"{place} is not there", todo)


def check_private_network() -> Finding:
    """Clusters on this machine are in a network of their own, unless they are told otherwise."""
    try:
        with PrivateNetwork():
            return ok("private network", "clusters on this machine can have one")
    except NoPrivateNetworkError as error:
        todo = "for clusters set trainer.distribution.network=host where you trust the network: docs/network.md"
        return Finding("private network", WARNING, str(error), todo)


def check_ports() -> Finding:
    """Tasks of a cluster reach each other at localhost."""
    todo = "bring the loopback interface up (ip link set lo up), and have /etc/hosts name localhost"
    try:
        (port,) = free_ports(1)
        with socket.create_server(("localhost", port)) as server:
            server.settimeout(_PORT_SECONDS)
            with socket.create_connection(("localhost", port), _PORT_SECONDS), server.accept()[0]:
                return ok("localhost", "ports can be opened and reached")
    except OSError as error:
        return Finding("localhost", FAILED, f"no port can be opened and reached: {error}", todo)


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
    found = {name: version_of(name) or "" for name in wanted}
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
    words = loader.fresh_python(_IMPORT)
    done = subprocess.run(words, capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False)
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        told = said[-1] if said else f"the process ended with {done.returncode}"
        return [Finding("TensorFlow", FAILED, f"cannot be imported: {told}", "install it anew: docs/install.md")]
    version, gpus = json.loads(done.stdout.splitlines()[-1])
    found = ok("devices", f"{gpus} GPUs" if gpus else "CPUs only")
    if (there := len(glob.glob("/dev/nvidia[0-9]*"))) > gpus:
        todo = "see CUDA_VISIBLE_DEVICES, or pip install "
        todo += f"tensorflow[and-cuda]=={stacks.current().tensorflow}; without, trainings are on CPUs"
        found = Finding("devices", WARNING, f"{there} GPUs, of which TensorFlow sees {gpus}", todo)
    return [ok("TensorFlow", version), found]


def _not_writable(folder: str) -> str:
    """Says why no file can be written into a folder; nothing if one can."""
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
