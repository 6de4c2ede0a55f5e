"""Networks of pods that are local processes."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Optional

import pytest


class Networks:
    """A network for each pod, all on one switch, and the names of their hosts.

    Args:
        folder: For the file of names.
    """

    def __init__(self, folder: Path) -> None:
        missing = [each for each in ("ip", "unshare", "nsenter") if not shutil.which(each)]
        if missing or os.geteuid():
            pytest.skip(f"networks of pods take root, and {', '.join(missing) or 'the command ip'}")
        self._numbers = itertools.count(1)
        self._hosts = folder / "hosts"
        self._names: dict[str, str] = {}
        self._first = Path("/etc/hosts").read_text()
        self._hosts.write_text(self._first)
        # Each keeps a network alive across restarts of pods.
        self._holders: list[subprocess.Popen] = []
        self._switch = self._hold("ip link set lo up; ip link add switch type bridge; ip link set switch up")

    def __enter__(self) -> Networks:
        return self

    def __exit__(self, *error: object) -> None:
        for each in self._holders:
            each.kill()
            each.wait()

    def join(self, host: str, argv: list[str]) -> tuple[list[str], str]:
        """Makes a network for a host's new pod; returns the command that runs in it, and its address."""
        number = next(self._numbers)
        address = f"10.87.{number // 250}.{number % 250 + 1}"
        mounted = f"ip link set lo up; mount --bind {self._hosts} /etc/hosts"
        holder = self._hold(mounted)
        inside = f"nsenter --target {holder.pid} --net ip"
        self._run(
            f"ip link add port{number} type veth peer name eth0 netns {holder.pid}"
            f" && ip link set port{number} master switch up",
            self._switch,
        )
        self._run(f"{inside} addr add {address}/16 dev eth0 && {inside} link set eth0 up")
        self._names[host] = address
        lines = "".join(f"{each} {name}\n" for name, each in self._names.items())
        # Written in place: pods have mounted this file, not its path.
        self._hosts.write_text(f"{self._first}\n{lines}")
        return ["nsenter", "--target", str(holder.pid), "--net", "--mount", *argv], address

    def _hold(self, prepare: str) -> subprocess.Popen:
        command = ["unshare", "--net", "--mount", "sh", "-c", f"{prepare}; echo ready; exec sleep infinity"]
        holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._holders.append(holder)
        if holder.stdout.readline() != "ready\n":
            pytest.skip(f"no network of its own can be made here: {holder.stderr.read().strip()}")
        return holder

    def _run(self, command: str, where: Optional[subprocess.Popen] = None) -> None:
        entered = ["nsenter", "--target", str(where.pid), "--net"] if where else []
        subprocess.run([*entered, "sh", "-c", command], check=True, capture_output=True)
