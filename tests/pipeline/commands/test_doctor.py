"""`doctor` on this machine, and on machines that lack something."""

from __future__ import annotations

import functools
import json
import os
import signal
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.folders import flip, write_files
from tests.pipeline import making
from tests.root import ROOT, run_python, start_python
from tests.stack import HERE
from tests.stack import pins as in_lock
from tfx_estimator.components import inventory
from tfx_estimator.components.trainer.cluster.private_network import NoPrivateNetworkError
from tfx_estimator.pipeline.base.stack.stacks import LEGACY, TODAY
from tfx_estimator.pipeline.doctor import machine, training
from tfx_estimator.pipeline.doctor.machine import FAILED, OK, WARNING, pins
from tfx_estimator.pipeline.folders import PipelineFolders

pytestmark = pytest.mark.unit

STATES = (OK, WARNING, FAILED)


def doctor(*arguments: str, path: Path | None = None, **environment: str) -> tuple[int, str]:
    """Runs `tfx-estimator doctor` in its own process; returns exit code and output."""
    environment["PYTHONPATH"] = os.pathsep.join(map(str, filter(None, (path, ROOT / "src"))))
    done = run_python("-m", "tfx_estimator", "doctor", *arguments, **environment)
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode, done.stdout


def test_a_whole_environment_can_run(tmp_path):
    # Without the training: that is tested below.
    code, output = doctor("--quick", "--json", "--workdir", str(tmp_path / "runs"))
    report = json.loads(output)
    findings = {finding["name"]: finding for finding in report["findings"]}
    assert code == 0, output
    assert report["ok"] is True
    assert {finding["state"] for finding in findings.values()} <= {OK, WARNING}
    assert all(finding["todo"] for finding in findings.values() if finding["state"] != OK)
    for name in ("Python", "platform", "packages", "work folder", "TensorFlow"):
        assert findings[name]["state"] == OK
    assert findings["TensorFlow"]["what"] == HERE.tensorflow
    assert findings["stack"]["what"] == HERE.words
    assert not (tmp_path / "runs").exists()


def test_damaged_files_of_runs_are_named_and_made_again_by_the_next_run(tmp_path, cli, monkeypatch):
    monkeypatch.setattr(inventory, "_SMALL", 0)
    word, folders = tmp_path / "word", PipelineFolders(str(tmp_path / "runs"), "digits")
    word.write_text("any")
    making.run(folders, word)
    command = ["doctor", "--runs", "--workdir", folders.workdir]
    assert cli(*command).out == "ok       digits           2 files are as they were published\n"
    flip(made := Path(folders.root) / "Making" / "model" / "1" / "word")
    (finding,) = json.loads(cli(*command, "--json", code=1).out)["findings"]
    assert (finding["name"], finding["what"]) == ("digits", f"{made}: its bytes have changed since it was published")
    assert {name: node.state for name, node in making.run(folders, word).runs.items()} == dict.fromkeys(
        ("Making", "Copying"), "ran"
    )
    cli(*command)
    cli("doctor", "--runs", "--workdir", str(tmp_path), code=1)


def test_a_broken_environment_is_reported_without_a_traceback(tmp_path):
    # A TensorFlow that cannot be imported, a wrong version of TFX, a damaged dist-info, a work folder that is a file.
    broken = {
        "tensorflow/__init__.py": "raise ImportError('libcudart.so.12: \\x1b[31mno such file')",
        "tfx-1.14.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tfx\nVersion: 1.14.0\n",
        "file": "",
    }
    write_files(tmp_path, broken)
    (tmp_path / "dill-0.4.1.dist-info").mkdir()
    code, output = doctor("--quick", "--workdir", str(tmp_path / "file" / "runs"), path=tmp_path)
    assert code == 1
    lines = output.splitlines()
    (versions,) = [line for line in lines if line.startswith("failed   packages")]
    assert f"tfx 1.14.0 (tested: {HERE.tfx})" in versions
    assert "dill is missing (tested: 0.4.1)" in versions
    (tensorflow,) = [line for line in lines if line.startswith("failed   TensorFlow")]
    assert "ImportError: libcudart.so.12" in tensorflow
    assert "\x1b" not in output
    assert any(line.startswith("failed   work folder") for line in lines)
    assert output.count("to do:") >= 3
    assert lines[-1] == "pipelines cannot run here: packages, work folder, TensorFlow"


def test_another_version_of_a_minor_package_is_a_warning(importable):
    write_files(importable, {"rich-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: rich\nVersion: 1.0\n"})
    finding = machine.check_versions()
    assert finding.state == WARNING
    assert finding.what.startswith("rich 1.0 (tested: ")
    assert "tfx-estimator constraints" in finding.todo


def test_in_the_image_all_is_well(monkeypatch):
    image = dict(pin.split("==") for pin in in_lock(HERE, "-image"))
    required = {name: metadata.requires(name.replace("tensorflow-cpu", "tensorflow")) for name in image}
    required["tfx-estimator"] = metadata.requires("tfx-estimator")

    def look(table: dict[str, Any], name: str) -> Any:
        if name not in table:
            raise metadata.PackageNotFoundError(name)
        return table[name]

    tested = pins()
    monkeypatch.setattr(metadata, "requires", functools.partial(look, required))
    monkeypatch.setattr(metadata, "version", functools.partial(look, image))
    finding = machine.check_versions(tested)
    assert finding.state == OK
    assert finding.what.startswith(f"all {len(image)} have the tested versions, {len(tested) - len(image)} optional")
    # Required by another package.
    del image["ml-metadata"], required["ml-metadata"]
    finding = machine.check_versions(tested)
    assert (finding.state, finding.what.partition(" (")[0]) == (WARNING, "ml-metadata is missing")


@pytest.mark.parametrize("version", [(3, 9, 1), (3, 10, 13), (3, 11, 0), (3, 13, 5), (3, 14, 0)])
def test_only_the_pythons_of_the_stack_are_accepted(version):
    known = {LEGACY: [(3, 10, 13)], TODAY: [(3, 11, 0), (3, 13, 5)]}[HERE]
    assert machine.check_python(version).state == (OK if version in known else FAILED)


@pytest.mark.parametrize(
    ("system", "kind", "libc", "state"),
    [
        ("Linux", "x86_64", ("glibc", {LEGACY: "2.28", TODAY: "2.39"}[HERE]), OK),
        ("Linux", "x86_64", ("glibc", {LEGACY: "2.27", TODAY: "2.38"}[HERE]), FAILED),
        ("Linux", "x86_64", ("", ""), FAILED),  # musl
        ("Linux", "aarch64", ("glibc", "2.36"), FAILED),
    ],
)
def test_only_the_platforms_of_the_wheels_are_accepted(monkeypatch, system, kind, libc, state):
    monkeypatch.setattr(machine.platform, "system", lambda: system)
    monkeypatch.setattr(machine.platform, "machine", lambda: kind)
    monkeypatch.setattr(machine.platform, "libc_ver", lambda: libc)
    assert machine.check_platform().state == state


def test_folders_without_space_or_permission(tmp_path, monkeypatch):
    assert machine.check_folder("work folder", str(tmp_path / "a" / "b"), "--workdir").state == OK
    assert machine.check_folder("work folder", "/proc/runs", "--workdir").state == FAILED
    usage = machine.shutil.disk_usage(tmp_path)
    for free, state in ((10 << 20, FAILED), (500 << 20, WARNING), (2 << 30, OK)):
        monkeypatch.setattr(machine.shutil, "disk_usage", lambda path, free=free: usage._replace(free=free))
        assert machine.check_folder("work folder", str(tmp_path), "--workdir").state == state


MEMORY = {"/proc/meminfo": "MemTotal: 24000000 kB\nMemAvailable: 20000000 kB"}


def test_little_memory_and_one_core(monkeypatch):
    texts = dict(MEMORY)
    quota = {"cpus": None}
    monkeypatch.setattr(machine, "cpu_quota", lambda: quota["cpus"])
    monkeypatch.setattr(machine, "_read", lambda path: texts.get(path, ""))
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: {0, 1})
    assert (machine.check_memory().state, machine.check_cores().state) == (OK, OK)
    # The limits of the container apply.
    texts |= {"/sys/fs/cgroup/memory.max": str(2 << 30), "/sys/fs/cgroup/memory.current": str(400 << 20)}
    quota["cpus"] = 0.5
    assert (machine.check_memory().state, machine.check_cores().state) == (WARNING, WARNING)
    assert "the container may use 0.5" in machine.check_cores().what
    texts["/sys/fs/cgroup/memory.current"] = str(1900 << 20)
    assert machine.check_memory().state == FAILED


def test_the_page_cache_of_a_container_takes_no_memory(monkeypatch):
    texts = {
        **MEMORY,
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": str(8 << 30),
        "/sys/fs/cgroup/memory/memory.usage_in_bytes": str((8 << 30) - 4096),
        "/sys/fs/cgroup/memory/memory.stat": f"inactive_file 0\ntotal_inactive_file {6 << 30}",
    }
    monkeypatch.setattr(machine, "_read", lambda path: texts.get(path, ""))
    assert (machine.check_memory().state, machine.check_memory().what) == (OK, "6.0 GiB free of 8.0")
    # cgroup v1's value for no limit.
    texts["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = str(2**63 - 4096)
    assert machine.check_memory().state == OK


def test_data_sets(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    assert machine.check_data_dir().state == WARNING
    assert machine.check_data_dir(str(tmp_path / "named")).state == FAILED
    (tmp_path / "tfds" / "mnist").mkdir(parents=True)
    assert machine.check_data_dir().what.endswith("tfds: mnist")


def test_a_machine_without_private_networks_or_a_loopback(monkeypatch):
    def refuse(*args):
        raise NoPrivateNetworkError("this process may not make a network namespace")

    monkeypatch.setattr(machine, "PrivateNetwork", refuse)
    finding = machine.check_private_network()
    assert (finding.state, finding.what) == (WARNING, "this process may not make a network namespace")
    assert "trainer.distribution.network=host" in finding.todo


def test_a_training_that_fails_is_reported_with_its_error(tmp_path):
    write_files(tmp_path, {"tensorflow/__init__.py": "raise ImportError('no instruction AVX')"})
    finding = training.check_training(environment={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert finding.state == FAILED
    assert "ImportError: no instruction AVX" in finding.what


def test_a_training_that_does_not_end_is_ended(tmp_path):
    (tmp_path / "tfx.py").write_text("import time; time.sleep(600)")
    started = time.monotonic()
    finding = training.check_training(1.0, {**os.environ, "PYTHONPATH": str(tmp_path), "TF_CONFIG": "{"})
    assert time.monotonic() - started < 30
    assert (finding.state, finding.what) == (FAILED, "two processes did not train within 1 s")


def test_sigterm_ends_the_training_too(tmp_path):
    (tmp_path / "tfx.py").write_text("import time; time.sleep(600)")
    code = (
        "import signal, sys; from tfx_estimator.pipeline.commands import doctor; from tfx_estimator.pipeline.doctor "
        "import training; doctor.examine = lambda *_: (print('begins', flush=True), "
        "iter([training.check_training()]))[1]; from tfx_estimator.__main__ import main; sys.exit(main(['doctor']))"
    )
    path = os.pathsep.join((str(tmp_path), str(ROOT / "src")))
    with start_python("-c", code, PYTHONPATH=path, TMPDIR=str(tmp_path)) as process:
        process.stdout.readline()
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    assert not list(tmp_path.glob("tfx-estimator-doctor-*"))


@pytest.mark.long
@pytest.mark.cluster
def test_two_processes_train(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    finding = training.check_training(environment={**os.environ, "TF_CONFIG": "of a cluster that is not asked"})
    assert finding.state == OK, finding
    assert "two processes trained and exported a model" in finding.what
    assert not list(tmp_path.iterdir())


def test_the_output_as_text(monkeypatch, cli):
    monkeypatch.setattr(machine, "check_tensorflow", list)
    one = machine.Finding("cores", WARNING, "1 logical CPU", "one_device")
    monkeypatch.setattr(machine, "check_cores", lambda: one)
    monkeypatch.setattr(training, "check_training", lambda: machine.ok("training", "\x1b[1m\ntrained"))
    monkeypatch.setattr(machine, "check_shared_memory", lambda: 1 / 0)
    lines = cli("doctor", code=1).out.splitlines()
    assert lines[-1] == "pipelines cannot run here: shared memory"
    assert "failed   shared memory    cannot be examined: ZeroDivisionError: division by zero" in lines
    index = lines.index("warning  cores            1 logical CPU")
    assert lines[index + 1] == f"{'':<25} to do: one_device"
    assert "\x1b" not in "".join(lines)
