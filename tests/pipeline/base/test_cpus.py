"""The number of CPUs a process may use, read from files of cgroups v1 and v2."""

from __future__ import annotations

import json
import os

import pytest

from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
from tfx_estimator.components.trainer.supervisor.process import _inherited
from tfx_estimator.components.trainer.task.start import keep_to_quota
from tfx_estimator.pipeline.base import cpus

NAMES = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
V1 = "11:memory:/a\n4:cpu,cpuacct:{}\n1:name=systemd:/\n0::/\n"


def v1(folder: str, quota: str) -> dict[str, str]:
    return {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": "100000"}


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """Writes the files of cgroups; this process has eight CPUs."""
    monkeypatch.setattr(cpus, "_CGROUPS", str(tmp_path / "cgroup"))
    monkeypatch.setattr(cpus, "_OWN", str(tmp_path / "own"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))

    def write(own: str, files: dict[str, str]) -> None:
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            (file := tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")

    return write


@pytest.mark.parametrize(
    ("own", "files", "quota", "available"),
    [
        ("0::/\n", {"cpu.max": "max 100000"}, None, 8),
        # A fraction of a CPU counts as a thread.
        ("0::/\n", {"cpu.max": "250000 100000"}, 2.5, 3),
        ("0::/\n", {"cpu.max": "10000 100000"}, 0.1, 1),
        ("0::/\n", {"cpu.max": "1600000 100000"}, 16.0, 8),
        # The smallest quota of its ancestors, by its path outside or, in a container, at the root.
        ("0::/pod/task\n", {"pod/cpu.max": "300000 100000", "pod/task/cpu.max": "100000 50000"}, 2.0, 2),
        ("0::/../outside\n", {"cpu.max": "400000 100000"}, 4.0, 4),
        # A machine's root has no quota.
        ("0::/\n", {}, None, 8),
        (V1.format("/"), v1("cpu,cpuacct", "-1"), None, 8),
        (V1.format("/docker/1"), v1("cpu,cpuacct", "150000"), 1.5, 2),
        (V1.format("/docker/1"), v1("cpu/docker/1", "300000"), 3.0, 3),
        # Both versions, with the controller in v1.
        ("1:cpu:/\n0::/\n", {**v1("cpu", "300000"), "cpu.max": "500000 100000"}, 3.0, 3),
    ],
)
def test_the_quota_of_a_container(cgroups, own, files, quota, available):
    cgroups(own, files)
    assert (cpus.cpu_quota(), cpus.available_cpus()) == (quota, available)


@pytest.mark.parametrize(
    ("exported", "share", "threads"),
    [
        ({}, None, ("3", "3")),
        # Next to other tasks of its container.
        ({"TF_NUM_INTRAOP_THREADS": "1"}, 1, ("1", "3")),
        ({}, 2, ("2", "2")),
        # Declared or exported values.
        ({"TF_NUM_INTRAOP_THREADS": "6"}, None, ("6", "3")),
        ({"TF_NUM_INTRAOP_THREADS": "6", "TF_NUM_INTEROP_THREADS": "5"}, None, ("6", "5")),
    ],
)
def test_a_task_has_no_more_threads_than_its_container_may_use(monkeypatch, capsys, cgroups, exported, share, threads):
    monkeypatch.setattr(os, "environ", dict(exported))
    cgroups("0::/\n", {"cpu.max": "250000 100000"})
    keep_to_quota(share)
    assert tuple(os.environ[name] for name in NAMES) == threads
    line = "runtime: intra-op threads: {}, inter-op threads: {}; this container may use 2.5 of 8 CPUs\n"
    assert capsys.readouterr().out == line.format(*threads)


@pytest.mark.parametrize(("servers", "ops"), [(1, "6"), (0, "3")])
def test_tasks_with_parameter_servers_run_one_op_more_than_there_are_workers(monkeypatch, cgroups, servers, ops):
    monkeypatch.setattr(os, "environ", {})
    cgroups("0::/\n", {"cpu.max": "250000 100000"})
    places = {"chief": ["a:1"], "worker": ["b:1"] * 4, "ps": ["c:1"] * servers}
    keep_to_quota(1, json.dumps({"cluster": {kind: each for kind, each in places.items() if each}}))
    assert tuple(os.environ[name] for name in NAMES) == ("1", ops)


@pytest.mark.parametrize(("share", "exported", "threads"), [(4, "2", "2"), (4, None, "4"), (1, "2", "1")])
def test_exported_values_override_a_share_of_the_quota(monkeypatch, share, exported, threads):
    if exported:
        monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", exported)
    else:
        monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    assert _inherited(TaskSpec("worker", 0, 1, threads=share))["TF_NUM_INTRAOP_THREADS"] == threads


def test_without_a_quota_nothing_is_set_or_printed(monkeypatch, capsys, cgroups):
    monkeypatch.setattr(os, "environ", {})
    cgroups("0::/\n", {"cpu.max": "max 100000"})
    keep_to_quota(None)
    assert (os.environ, capsys.readouterr().out) == ({}, "")
